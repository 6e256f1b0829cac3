from slurm_cluster.rehearsal.progress import Span
from slurm_cluster.rehearsal.report import NOT_REHEARSED, SmokeTest, limits_lines, smoke_test_lines, timeline_lines

RESULT = {
    "passed": False,
    "nodes": {"cpu-static-1": "ip-10-0-64-5"},
    "checks": [
        {"name": "workers-idle", "passed": True, "seconds": 0.25, "detail": "1 workers are idle"},
        {"name": "srun:cpu", "passed": False, "seconds": 60, "detail": "nothing printed"},
        {"name": "srun-in-job:cpu", "passed": None, "seconds": 0, "detail": "the partition has one static worker"},
    ],
    "output": "cpu-static-1 ip-10-0-64-5\n",
}


def test_what_srun_printed_and_each_check() -> None:
    assert list(smoke_test_lines(SmokeTest.from_dict(RESULT))) == [
        "srun printed (node name, host name):",
        "  cpu-static-1 ip-10-0-64-5",
        "check workers-idle: passed in 0.2 s",
        "check srun:cpu: FAILED after 60.0 s: nothing printed",
        "check srun-in-job:cpu: does not apply: the partition has one static worker",
    ]


def test_the_timeline_tells_begin_and_duration() -> None:
    assert list(timeline_lines([Span("cdk deploy", 3.5, 14.6)]))[1:] == ["           3.5s   11.1s  cdk deploy"]


def test_the_limits_name_everything_and_differences_only_if_any() -> None:
    said = list(limits_lines(["SSM agent: a stand-in"], []))
    assert {line.strip() for line in said} >= {"SSM agent: a stand-in", *NOT_REHEARSED}
    assert not any("reported otherwise" in line for line in said)
    assert list(limits_lines([], ["AWS::EC2::VPC vpc-1: Tags"]))[-1] == "  AWS::EC2::VPC vpc-1: Tags"

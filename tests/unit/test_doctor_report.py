"""What the doctor says: a word for each probe, an exit status by class, and the same as text and as JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_cluster.doctor import command_line, head, table
from slurm_cluster.doctor.examination import Examination
from slurm_cluster.doctor.probes import Outcome, rows
from slurm_cluster.doctor.report import Report
from slurm_cluster.doctor.visits import Visit
from slurm_cluster.model.flows import SlurmPorts, cluster_flows
from slurm_cluster.runtime.evidence import HEAD
from slurm_cluster.runtime.node import probe_connections
from slurm_cluster.runtime.node.commands import CommandError
from slurm_cluster.runtime.verdict import findings
from tests.runtime.node_doubles import Programs
from tests.unit.test_doctor_faults import Foreign, full_disk
from tests.unit.verdict_cases import FIRST, SECOND

NODE = "NodeName={} CPUAlloc=0 CPUTot=4 NodeAddr=a NodeHostName=h Version=24.11.5 State=IDLE Partitions=lab\n"


def examined(case: Foreign, *, busy: tuple[str, ...] = ()) -> Examination:
    for node in busy:
        case.unvisited(node)
    evidence = case.evidence()
    visits = {
        node: Visit(how="not", why="it is busy with users' jobs") if node in busy else Visit(how="job", answer={})
        for node in (FIRST, SECOND)
    }
    return Examination(
        evidence=type(evidence)(**{**vars(evidence), "foreign": True}),
        nodes=table.parse("".join(NODE.format(node) for node in (FIRST, SECOND))),
        visits=visits,
        seconds={"disks": 0.2, "hung": 0.4},
    )


def report(found: Examination) -> Report:
    faults = findings(found.evidence)
    return Report(faults=faults, rows=rows(found, faults), notes=["a note"], seconds=9.7)


def outcomes(said: Report) -> dict[str, Outcome]:
    return {row.probe: row.outcome for row in said.rows}


def test_healthy_is_0_with_a_word_for_every_flow() -> None:
    said = report(examined(Foreign()))
    assert said.status == 0
    assert {f"flow {flow.id}" for flow in cluster_flows(SlurmPorts())} <= set(outcomes(said))
    assert set(outcomes(said).values()) == {Outcome.OK, Outcome.NOT_APPLICABLE}
    assert "No fault was found." in said.text()


def test_a_fault_is_1_and_stands_in_its_probe_alone() -> None:
    case = Foreign()
    full_disk(case)
    said = report(examined(case))
    assert said.status == 1
    assert [name for name, outcome in outcomes(said).items() if outcome is Outcome.FAULT] == ["disks and mounts"]
    text = said.text()
    assert "FAULT disks and mounts" in text
    assert "1. disk-full (cpu-static-1)" in text
    assert "change: Make room" in text
    assert max(map(len, text.splitlines())) <= 110


def test_a_closed_flow_stands_in_its_own_row_with_where_its_packets_end() -> None:
    case = Foreign()
    case.drop(FIRST, HEAD)
    said = report(examined(case))
    bad = [row for row in said.rows if row.outcome is Outcome.FAULT]
    assert [row.probe for row in bad] == ["flow srun-io"]
    assert bad[0].evidence == f"TCP 1024, 33279, 65535: {FIRST} to head (on the way)"


def test_what_could_not_be_looked_at_is_2_and_says_why() -> None:
    said = report(examined(Foreign(), busy=(FIRST, SECOND)))
    assert said.status == 2
    assert outcomes(said)["flow srun-io"] is Outcome.UNKNOWN
    assert outcomes(said)["disks and mounts"] is Outcome.OK
    assert "busy with users' jobs" in next(row.evidence for row in said.rows if row.probe == "flow srun-io")


def test_json_has_the_same() -> None:
    case = Foreign()
    full_disk(case)
    value = json.loads(json.dumps(report(examined(case)).to_dict()))
    assert (value["status"], value["seconds"], value["notes"]) == ("fault", 9.7, ["a note"])
    assert value["faults"][0]["code"] == "disk-full"
    assert value["faults"][0]["reason"].startswith("disk-full: ")
    first = value["probes"][0]
    assert (first["probe"], first["outcome"], first["seconds"], first["deadline"]) == (
        "disks and mounts",
        "fault",
        0.4,
        head.FACT_SECONDS,
    )


@pytest.fixture
def dead(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Programs:
    """The programs of a machine on which nothing of Slurm answers."""
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "none"))
    monkeypatch.setattr(probe_connections, "ATTEMPT_SECONDS", 0.1)
    return Programs({"scontrol": 1, "systemctl": CommandError("systemctl: not here"), "munge": "MUNGE:x:"})


def test_slurmctld_that_cannot_be_asked_is_a_fault_and_the_rest_is_open(
    dead: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    status = command_line.main(["--json"], dead)
    value = json.loads(capsys.readouterr().out)
    assert status == 1
    assert "slurmctld-down" in {fault["code"] for fault in value["faults"]}
    assert not {fault["code"] for fault in value["faults"] if fault["code"].endswith("-blocked")}
    assert next(row["outcome"] for row in value["probes"] if row["probe"] == "flow srun-io") == "could not tell"


def test_a_machine_without_slurm_is_told(
    dead: Programs, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    command_line.main([], dead)
    assert "No scontrol is on this machine" in capsys.readouterr().out


def test_evidence_that_cannot_be_written_costs_nothing_of_the_report(
    dead: Programs, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "no" / "evidence"
    assert command_line.main(["--json", "--evidence", str(file)], dead) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["faults"]
    assert said.err == f"slurm-doctor: {file} cannot be written: No such file or directory\n"


def test_nodes_that_slurmctld_does_not_list_are_not_called_healthy() -> None:
    found = examined(Foreign())
    found.unlisted = ["typo-1"]
    said = report(found)
    assert (said.status, outcomes(said)["node states"]) == (2, Outcome.UNKNOWN)
    assert "slurmctld lists no node typo-1" in said.text()


def test_nodes_are_given_as_slurm_lists_hosts() -> None:
    run = Programs({"scontrol show hostnames cpu-[1-2]": "cpu-1\ncpu-2\n", "scontrol show hostnames a,b": 1})
    assert table.expanded(run, ["cpu-[1-2]", "cpu-2", "a,b", "gpu-1"]) == ["cpu-1", "cpu-2", "a", "b", "gpu-1"]
    assert table.expanded(Programs({"scontrol": 1}), ["cpu-[1-2]"]) == ["cpu-[1-2]"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [(["--most", "0"], "give 1 or more"), (["--user", "no-such-user"], "there is no user 'no-such-user'")],
)
def test_wrong_usage_is_2(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command_line.main(arguments)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_a_reader_who_has_read_enough_is_no_error() -> None:
    program = "from slurm_cluster.doctor import command_line as c; c.main = lambda _: print('x' * 10**6); c.start()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        stdout=_closed_pipe(),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (2, "")


def _closed_pipe() -> int:
    reading, writing = os.pipe()
    os.close(reading)
    return writing

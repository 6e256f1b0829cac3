import json
from pathlib import Path

from slurm_cluster.model.node_files import STATUS_FILE
from slurm_cluster.rehearsal.progress import NodeProgress, Progress, Status, read_status


class Clock:
    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


def status(state: str, *names: str, reason: str | None = None, boot_id: str = "b1") -> Status:
    steps = [{"name": name, "started": 1002.0 + number, "ended": None} for number, name in enumerate(names)]
    text = {"boot_id": boot_id, "state": state, "step": names[-1], "reason": reason, "steps": steps}
    return Status.parse(json.dumps(text))


def test_each_step_is_said_once_and_spans_are_kept() -> None:
    clock, lines = Clock(), list[str]()
    progress = Progress(lines.append, clock=clock)
    node = NodeProgress(progress, "cpu-static-1")
    clock.time = 1003.0
    node.observe(status("running", "packages"), "b1")
    node.observe(status("running", "packages"), "b1")
    clock.time = 1005.5
    node.observe(status("ready", "packages", "munge"), "b1")
    node.observe(status("ready", "packages", "munge"), "b1")
    assert lines == [
        "+   0.0s cpu-static-1     boot",
        "+   3.0s cpu-static-1     bootstrap: packages",
        "+   5.5s cpu-static-1     bootstrap: munge",
        "+   5.5s cpu-static-1     ready",
    ]
    assert [(span.what, span.began, span.ended) for span in progress.spans()] == [
        ("cpu-static-1: boot", 0.0, 2.0),
        ("cpu-static-1: bootstrap", 2.0, 5.5),
    ]


def test_a_failure_is_said_with_its_reason() -> None:
    lines: list[str] = []
    NodeProgress(Progress(lines.append, clock=Clock()), "head").observe(
        status("failed", "munge", reason="no key"), "b1"
    )
    assert lines[-1] == "+   0.0s head             bootstrap failed in step munge: no key"


def test_the_status_of_an_earlier_boot_is_not_of_this_one() -> None:
    lines: list[str] = []
    node = NodeProgress(Progress(lines.append, clock=Clock()), "head")
    node.observe(status("ready", "munge", boot_id="b0"), "b1")
    assert node.status is None
    assert len(lines) == 1


def test_the_status_file_is_found_below_the_nodes_root(tmp_path: Path) -> None:
    assert read_status(tmp_path) is None
    path = tmp_path / STATUS_FILE.relative_to("/")
    path.parent.mkdir(parents=True)
    path.write_text(
        json.dumps({"boot_id": "b1", "state": "running", "step": "munge", "reason": None, "steps": []}),
    )
    found = read_status(tmp_path)
    assert found is not None
    assert (found.state, found.step) == ("running", "munge")


def test_user_data_that_fails_before_bootstrap_says_so_on_the_console() -> None:
    lines: list[str] = []
    node = NodeProgress(Progress(lines.append, clock=Clock()), "head")
    node.observe_console("[  OK  ] Started\n")
    assert node.failure is None
    node.observe_console("[  OK  ] Started\r\nslurm-cluster: FAILED step=network reason=no route\r\n")
    assert node.failure == "slurm-cluster: FAILED step=network reason=no route"

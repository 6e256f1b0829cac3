"""Visits to workers: jobs that answer, wait, fail or stay silent; answers that travel as comments or directly."""

from __future__ import annotations

import base64
import gzip
import json
import random
import socket
import string
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm_cluster.doctor import answers, table, visits, worker
from slurm_cluster.doctor.collector import Collector
from slurm_cluster.doctor.table import Node
from slurm_cluster.doctor.visits import Limits, Visits
from slurm_cluster.model.flows import PortRange
from slurm_cluster.runtime.node.commands import CommandError
from tests.runtime.node_doubles import Answer, Programs

LOOPBACK = "127.0.0.1"
REQUEST = {"DOCTOR_SECONDS": "1", "DOCTOR_NODE": "n1"}
NODES = """\
NodeName=n1 Arch=x86_64 CPUAlloc=0 CPUTot=4 NodeAddr=n1 NodeHostName=n1 Version=24.11.5 RealMemory=1 \
State=IDLE Partitions=lab,big SlurmdStartTime=2026-11-30T22:34:21 Reason=
NodeName=n2 CPUAlloc=4 CPUTot=4 NodeAddr=n2 NodeHostName=n2 Version=24.11.5 RealMemory=1 State=ALLOCATED Partitions=lab
NodeName=n3 CPUAlloc=0 CPUTot=4 NodeAddr=n3 NodeHostName=n3 RealMemory=1 State=IDLE+CLOUD+POWERED_DOWN Partitions=lab
NodeName=n4 CPUAlloc=0 CPUTot=4 NodeAddr=n4 NodeHostName=n4 RealMemory=1 State=DOWN+NOT_RESPONDING Partitions=lab
NodeName=n5 CPUAlloc=0 CPUTot=4 NodeAddr=n5 NodeHostName=n5 RealMemory=1 State=IDLE+DRAIN Partitions=lab Reason=x y
NodeName=n6 CPUAlloc=0 CPUTot=4 NodeAddr=n6 NodeHostName=n6 RealMemory=1 State=IDLE
NodeName=n7 CPUAlloc=2 CPUTot=4 NodeAddr=n7 NodeHostName=n7 RealMemory=1 State=MIXED Partitions=lab
"""


def node(name: str = "n1") -> Node:
    return table.parse(NODES)[name]


def test_what_people_write_of_a_node_is_no_field_of_it() -> None:
    written = NODES.replace("Reason=x y", "Reason=RealMemory=low CPUTot=2 [root@now]")
    assert table.parse(written)["n5"].memory == 1
    assert table.parse(written)["n5"].cpus == 4
    assert table.parse(written)["n5"].state.reason == "RealMemory=low CPUTot=2 [root@now]"


class Silent:
    """A collector to which nothing comes."""

    request: dict[str, str] = {}  # noqa: RUF012 - nobody changes it

    def answer(self, name: str) -> None:
        return None


def job(state: str, comment: str = "", reason: str = "None", status: str = "0:0") -> str:
    said = f" Comment={comment}" if comment else ""
    return f"JobId=7 JobState={state} Reason={reason} ExitCode={status} StartTime=2026-11-30T22:34:21{said} WorkDir=/"


def visit(programs: Programs, *, limits: Limits | None = None, of: str = "n1", **options: Any) -> visits.Visit:
    limits = limits or Limits(start=0.2, answer=0.4)
    with Visits(programs, Silent(), memory=False, limits=limits, **options) as made:  # type: ignore[arg-type]
        return made.visit(node(of), REQUEST)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visits, "_POLL_SECONDS", 0.01)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("n2", "busy with users' jobs"),
        ("n3", "power saving"),
        ("n4", "DOWN+NOT_RESPONDING"),
        ("n5", "starts no job there"),
        ("n6", "in no partition"),
    ],
)
def test_nodes_on_which_no_job_can_start_are_not_given_one(name: str, why: str) -> None:
    programs = Programs()
    found = visit(programs, of=name)
    assert (found.how, why in found.why) == ("not", True)
    assert programs.calls == []


def test_idle_and_partly_free_nodes_are_visited() -> None:
    assert (node("n1").why_not, node("n7").why_not) == ("", "")


def test_an_answer_comes_in_pieces_of_which_each_is_taken_before_the_next() -> None:
    noise = "".join(random.Random(1).choices(string.ascii_letters, k=4000))  # noqa: S311 - only hard to compress
    sent = {"facts": {"noise": noise, "time": 5.0}, "meet": {}}
    comment = job("RUNNING")

    def worker_side(argv: list[str]) -> Answer:
        nonlocal comment
        words = dict(word.partition("=")[::2] for word in argv if "=" in word)
        comment = job("RUNNING", words["Comment"])
        return ""

    ends = Programs({"scontrol update": worker_side, "scontrol --oneliner show job": lambda _: comment})
    pieces: list[str] = []

    def update(argv: list[str]) -> Answer:
        assert argv[-1] == f"Comment={answers.ACK}"
        comment_now = answers.comment(comment)
        pieces.append(comment_now)
        return worker_side(argv)

    head = Programs(
        {
            "env -i": "7",
            "scontrol update JobId": update,
            "scontrol --oneliner show job": lambda _: comment,
        }
    )
    import threading

    sender = threading.Thread(target=lambda: worker.send(json.dumps(sent), "7", ends, sleep=lambda _: None))
    sender.start()
    found = visit(head, limits=Limits(start=5, answer=5))
    sender.join()
    assert (found.how, found.answer) == ("job", sent)
    assert len(pieces) > 2
    assert max(map(len, pieces)) <= 1024
    assert head.called("scancel") == ["scancel --quiet 7"]


def test_the_submission_waits_for_nobody_asks_for_no_output_and_takes_no_settings_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SBATCH_RESERVATION", "mine")
    programs = Programs({"env -i": "7;cluster", "scontrol --oneliner": job("COMPLETED")})
    visit(programs)
    (line,) = programs.called("env -i")
    for words in ("--nodelist=n1", "--partition=lab", "--no-requeue", "--output=/dev/null", "--time=2", "--nodes=1"):
        assert words in line
    assert "SBATCH_RESERVATION" not in line
    assert "--mem" not in line


def test_memory_is_asked_for_where_it_is_given_out_and_no_more_than_the_node_has() -> None:
    programs = Programs({"env -i": "7", "scontrol --oneliner": job("COMPLETED")})
    with Visits(programs, Silent(), memory=True) as made:  # type: ignore[arg-type]
        made.visit(node(), REQUEST)
    assert "--mem=1M" in programs.called("env -i")[0]


def test_a_job_that_waits_is_cancelled_and_its_reason_told() -> None:
    programs = Programs({"env -i": "7", "scontrol --oneliner show job": job("PENDING", reason="Priority")})
    found = visit(programs)
    assert (found.how, found.why) == ("not", "its job waits: Priority")
    assert programs.called("scancel") == ["scancel --quiet 7"]


def test_a_job_that_is_refused_is_told_with_slurms_words() -> None:
    found = visit(Programs({"env -i": 1}))
    assert (found.how, found.why.startswith("no job could be submitted")) == ("not", True)


def test_sbatch_that_cannot_be_run_is_told() -> None:
    found = visit(Programs({"env -i": CommandError("sbatch: no end after 15 seconds")}))
    assert "no end after 15 seconds" in found.why


def test_a_job_that_runs_and_says_nothing_is_silent_and_cancelled() -> None:
    programs = Programs({"env -i": "7", "scontrol --oneliner show job": job("RUNNING")})
    found = visit(programs)
    assert (found.how, found.started > 0) == ("silent", True)
    assert programs.called("scancel") == ["scancel --quiet 7"]


def test_a_job_that_is_over_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visits, "_COMPLETING_SECONDS", 0.05)
    programs = Programs({"env -i": "7", "scontrol --oneliner show job": job("COMPLETING")})
    began = time.monotonic()
    found = visit(programs, limits=Limits(start=5, answer=5))
    assert (found.how, time.monotonic() - began < 3) == ("silent", True)


@pytest.mark.parametrize(
    ("status", "words"), [("40", "neither Python"), ("41", "no scontrol"), ("42", "could not reach")]
)
def test_a_job_that_could_not_answer_says_so_by_its_exit_status(status: str, words: str) -> None:
    programs = Programs({"env -i": "7", "scontrol --oneliner": job("FAILED", status=f"{status}:0")})
    found = visit(programs)
    assert (found.how, words in found.why) == ("silent", True)


def drained(reason: str) -> str:
    return NODES.replace("State=IDLE Partitions=lab,big", "State=IDLE+DRAIN Partitions=lab,big").replace(
        "Reason=\n", f"Reason={reason} [slurm@2026-11-30T23:00:24]\n", 1
    )


@pytest.mark.parametrize("reason", ["batch job complete failure", "SlurmdSpoolDir is full"])
def test_a_node_that_slurm_drains_for_the_doctors_job_is_given_back(reason: str) -> None:
    programs = Programs(
        {
            "env -i": "7",
            "scontrol --oneliner show job": job("FAILED", status="1:0"),
            "scontrol --oneliner show nodes": drained(reason),
        }
    )
    found = visit(programs)
    assert (found.how, reason in found.drained) == ("failed", True)
    assert "which the doctor took back" in found.why
    assert programs.called("scontrol update NodeName") == ["scontrol update NodeName=n1 State=RESUME"]


def test_a_node_that_somebody_else_drains_meanwhile_stays_drained() -> None:
    programs = Programs(
        {
            "env -i": "7",
            "scontrol --oneliner show job": job("FAILED", status="1:0"),
            "scontrol --oneliner show nodes": drained("maintenance of the job queue"),
        }
    )
    visit(programs)
    assert programs.called("scontrol update NodeName") == []


def test_whoever_interrupts_it_leaves_no_job() -> None:
    def interrupt(_: list[str]) -> Answer:
        raise KeyboardInterrupt

    programs = Programs({"env -i": "7", "scontrol --oneliner show job": interrupt})
    with pytest.raises(KeyboardInterrupt):
        visit(programs)
    assert programs.called("scancel") == ["scancel --quiet 7"]


def test_by_ssh_only_where_it_is_asked_for() -> None:
    said = json.dumps({"facts": {"time": 1.0}, "meet": {}})
    assert visit(Programs({"ssh": said}), of="n4").answer is None
    programs = Programs({"ssh": said})
    found = visit(programs, of="n4", ssh=True)
    assert (found.how, found.answer) == ("ssh", json.loads(said))
    assert "BatchMode=yes" in programs.calls[0]


def test_a_machine_without_python_packs_its_answer_by_gzip() -> None:
    sent: dict[str, Any] = {"facts": {}, "meet": {}}
    assert answers.decode(base64.b64encode(gzip.compress(json.dumps(sent).encode())).decode()) == sent


@pytest.mark.parametrize("text", ["", "AAAA", base64.b64encode(gzip.compress(b"[1]", mtime=0)).decode()])
def test_what_is_no_answer_is_no_answer(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        answers.decode(text)


@pytest.fixture
def hand_over() -> Callable[..., bool]:
    def send(collector: Collector, text: str, **more: str) -> bool:
        return worker.hand_over(text, {**REQUEST, **collector.request, **more})

    return send


def test_an_answer_is_taken_from_whom_was_asked_and_from_nobody_else(hand_over: Callable[..., bool]) -> None:
    sent = {"facts": {"x": "y" * 100_000}, "meet": {}}
    with Collector(PortRange(20000, 30000), LOOPBACK) as collector:
        assert not hand_over(collector, json.dumps(sent), DOCTOR_TOKEN="guessed")  # noqa: S106 - of a test
        assert collector.answer("n1") is None
        assert not hand_over(collector, "[]")
        assert hand_over(collector, json.dumps(sent))
        assert collector.answer("n1") == sent


def test_where_nobody_listens_the_answer_goes_another_way(hand_over: Callable[..., bool]) -> None:
    with Collector(PortRange(20000, 30000), LOOPBACK) as collector:
        request = collector.request
    assert not worker.hand_over("{}", {**REQUEST, **request})
    assert not worker.hand_over("{}", REQUEST)


def test_a_full_range_collects_nothing_and_stops_nobody() -> None:
    with socket.create_server(("", 0)) as held:
        port = held.getsockname()[1]
        with Collector(PortRange(port, port), LOOPBACK) as collector:
            assert collector.request == {}


def test_no_scontrol_and_no_hearing_have_exit_statuses_of_their_own(tmp_path: Path) -> None:
    gone = Programs({"scontrol": CommandError("scontrol: No such file or directory")})
    assert worker.send("{}", "7", gone) == worker.NO_SCONTROL
    assert worker.send("{}", "7", Programs({"scontrol": 1})) == worker.NOT_HEARD

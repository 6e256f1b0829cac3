"""Probes: facts of which each can fail alone, and connections of every outcome over real sockets."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slurm_cluster.model.flows import Role
from slurm_cluster.runtime.node import command_line, probe_connections, probe_facts
from slurm_cluster.runtime.node.commands import CommandError
from slurm_cluster.runtime.node.identity import NodeIdentity
from slurm_cluster.runtime.node.probe_connections import Outcome, Target, connect, meet, parse_syn, target
from tests.runtime.node_doubles import Programs

LOOPBACK = "127.0.0.1"


@contextmanager
def listening() -> Iterator[int]:
    with socket.create_server((LOOPBACK, 0)) as server:
        yield server.getsockname()[1]


def free_port() -> int:
    with socket.create_server((LOOPBACK, 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def silent() -> Iterator[int]:
    """A port that answers no SYN: its queue of connections that nobody accepts is full."""
    with socket.socket() as server:
        server.bind((LOOPBACK, 0))
        server.listen(0)
        port = server.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex((LOOPBACK, port))
        time.sleep(0.1)
        yield port
        for one in waiting:
            one.close()


def test_each_outcome_of_a_connection() -> None:
    with listening() as port:
        assert connect(Target(LOOPBACK, port)) is Outcome.OPEN
    assert connect(Target(LOOPBACK, free_port())) is Outcome.REFUSED
    with silent() as port:
        assert connect(Target(LOOPBACK, port), seconds=0.3) is Outcome.TIMEOUT
    assert connect(Target("no-such-name.invalid", 1)) is Outcome.UNRESOLVABLE
    # a class E address: the kernel has no way there
    assert connect(Target("255.255.255.255", 9)) is Outcome.UNREACHABLE


def test_two_that_listen_and_connect_meet_although_one_comes_later() -> None:
    port = free_port()
    started = time.monotonic()
    code = (
        "import json; from slurm_cluster.runtime.node.probe_connections import *; "
        f"print(json.dumps(meet([], [Target('{LOOPBACK}', {port})], seconds=6)))"
    )
    early = subprocess.Popen(["python3", "-c", code], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
    time.sleep(1)
    late = meet([port], [], seconds=4)
    assert late["listening"] == [port]
    assert late["accepted"] == [[LOOPBACK, port]]
    (connection,) = json.loads(early.communicate(timeout=20)[0])["connections"]
    assert (connection["outcome"], connection["attempts"] > 1) == ("open", True)
    assert time.monotonic() - started < 12


def test_a_port_that_another_program_holds_is_said_to_be_taken() -> None:
    with listening() as port:
        found = meet([port], [Target(LOOPBACK, port)], seconds=1)
    assert (found["listening"], found["taken"]) == ([], [port])
    assert found["connections"][0]["outcome"] == "open"


def test_trying_ends_in_time_where_nothing_answers() -> None:
    began = time.monotonic()
    with silent() as port:
        found = meet([], [Target(LOOPBACK, port)], seconds=2)
    assert found["connections"][0]["outcome"] == "timeout"
    assert time.monotonic() - began < 4


@pytest.mark.skipif(os.geteuid() != 0, reason="looking at packets needs root")
def test_syns_are_seen_where_they_leave_and_where_they_arrive() -> None:
    watched, other = free_port(), free_port()
    found = meet([], [Target(LOOPBACK, watched), Target(LOOPBACK, other)], seconds=1, watch=[watched])
    assert found["watching"]
    assert found["arrived"] == [[LOOPBACK, watched]]
    assert [item["left"] for item in found["connections"]] == [True, True]


@pytest.mark.skipif(os.geteuid() != 0, reason="looking at packets needs root")
def test_what_jobs_send_does_not_hide_a_syn() -> None:
    wire = probe_connections._wire()
    assert wire is not None
    with wire, socket.create_server(("127.0.0.1", 0)) as server, socket.socket(type=socket.SOCK_DGRAM) as job:
        for _ in range(5000):  # more than the socket's buffer holds
            job.sendto(b"x" * 1000, server.getsockname())
        with socket.create_connection(server.getsockname()) as connection:
            connection.sendall(b"x" * 100_000)
        seen = probe_connections._Seen()
        time.sleep(0.1)
        probe_connections._read(wire, seen)
        assert ("127.0.0.1", server.getsockname()[1]) in seen.arrived & seen.left


def test_where_packets_cannot_be_seen_nothing_is_said_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_connections, "_wire", lambda: None)
    found = meet([], [Target(LOOPBACK, free_port())], seconds=0.5, watch=[1])
    assert (found["watching"], found["arrived"], found["connections"][0]["left"]) == (False, [], None)


def packet(*, protocol: int = 6, flags: int = 0x02, options: int = 0) -> bytes:
    header = struct.pack(
        "!BBHHHBBH4s4s",
        0x45 + options,
        0,
        60,
        0,
        0,
        64,
        protocol,
        0,
        socket.inet_aton("10.0.0.11"),
        socket.inet_aton("10.0.0.5"),
    )
    return header + b"\0" * options * 4 + struct.pack("!HHIIBBHHH", 40000, 6817, 1, 0, 0x50, flags, 0, 0, 0)


def test_only_the_packet_that_opens_a_connection_counts() -> None:
    syn = ("10.0.0.11", "10.0.0.5", 6817)
    assert parse_syn(packet()) == parse_syn(packet(options=3)) == syn
    assert parse_syn(packet(flags=0xC2)) == syn, "with explicit congestion notification"
    for other in (packet(flags=0x12), packet(flags=0x10), packet(flags=0x04), packet(protocol=17), b"", packet()[:30]):
        assert parse_syn(other) is None


@pytest.mark.parametrize("text", ["10.0.0.5", "10.0.0.5:", "10.0.0.5:http"])
def test_a_target_is_host_and_port(text: str) -> None:
    assert target("head.internal:6817") == Target("head.internal", 6817)
    with pytest.raises(ValueError, match="invalid literal"):
        target(text)


def test_one_fact_that_fails_stops_no_other() -> None:
    def fails() -> None:
        raise CommandError("munge: no end after 10 seconds")

    assert probe_facts.gather({"a": lambda: 1, "b": fails, "c": lambda: {"x": 2}}) == {
        "a": 1,
        "b": {"error": "munge: no end after 10 seconds"},
        "c": {"x": 2},
    }


def test_facts_are_gathered_at_the_same_time() -> None:
    began = time.monotonic()
    probe_facts.gather({str(number): lambda: time.sleep(0.3) for number in range(12)})
    assert time.monotonic() - began < 1


def test_facts_of_a_worker_ask_nobody_else() -> None:
    who = NodeIdentity(parameter_path="/p", role=Role.WORKER, node_name="cpu-static-1")
    run = Programs({"systemctl show": "ActiveState=active\nSubState=running\nResult=success\nUnitFileState=disabled\n"})
    found = probe_facts.gather(probe_facts.all_of(run, who))
    assert found["node"] == "cpu-static-1"
    assert found["slurm"]["active"] == found["munge"]["active"] == "active"
    assert {"available", "mount"} <= set(found["disks"][0])
    assert found["hung"] == []
    assert {"controller", "nodes", "head_host"} & set(found) == set()
    assert [line for line in run.calls if line.startswith(("scontrol", "srun"))] == []


def test_a_unit_that_does_not_run_shows_the_end_of_its_journal() -> None:
    run = Programs(
        {
            "systemctl show": "ActiveState=failed\nSubState=failed\nResult=exit-code\nUnitFileState=masked\n",
            "journalctl": "fatal: x\n",
        }
    )
    assert probe_facts.unit(run, "slurmd.service") == {
        "active": "failed",
        "sub": "failed",
        "result": "exit-code",
        "file": "masked",
        "journal": "fatal: x",
    }


DECODED = """\
STATUS:          Success (0)
ENCODE_HOST:     ip-10-0-0-5 (10.0.0.5)
ENCODE_TIME:     2026-11-30 18:00:00 +0000 (1796061600)
DECODE_TIME:     2026-11-30 18:00:04 +0000 (1796061604)
TTL:             300
"""


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (DECODED, {"decoded": True, "status": "Success (0)", "age": 4}),
        (14, {"decoded": False, "status": "it said nothing", "age": None}),
    ],
)
def test_a_credential_of_another_machine(answer: str | int, expected: dict[str, object]) -> None:
    run = Programs({"unmunge": answer})
    assert probe_facts.decode(run, "MUNGE:x:") == expected
    assert run.inputs == ["MUNGE:x:"]


def test_own_credentials_are_those_of_a_user_without_rights() -> None:
    run = Programs({"runuser --user=nobody -- munge --no-input --restrict-uid=0": "MUNGE:x:\n"})
    assert probe_facts.encode(run) == "MUNGE:x:"


def test_names_are_looked_up_as_programs_do() -> None:
    run = Programs(
        {
            "getent ahostsv4 head": "10.0.0.5 STREAM head\n10.0.0.5 DGRAM\n10.0.0.6 STREAM\n",
            "getent ahostsv4 gone": 2,
            "getent ahostsv4 slow": CommandError("getent ahostsv4 slow: no end after 10 seconds"),
        }
    )
    assert probe_facts.resolve(run, "head") == {"addresses": ["10.0.0.5", "10.0.0.6"], "problem": ""}
    assert probe_facts.resolve(run, "gone") == {"addresses": [], "problem": "no such name"}
    assert "no end" in probe_facts.resolve(run, "slow")["problem"]


def test_status_is_that_of_this_boot(tmp_path: Path) -> None:
    file, boot = tmp_path / "status.json", tmp_path / "boot_id"
    boot.write_text("b1\n")
    assert probe_facts.status(file, boot)["state"] == "none"
    steps = [{"name": "head", "started": time.time() - 70, "ended": None}]
    value = {"boot_id": "b1", "state": "running", "step": "head", "reason": None, "steps": steps}
    file.write_text(json.dumps(value))
    found = probe_facts.status(file, boot)
    assert (found["state"], found["step"], 69 < found["seconds"] < 80) == ("running", "head", True)
    boot.write_text("b2\n")
    assert probe_facts.status(file, boot)["state"] == "none"


def test_log_lines_that_tell_of_trouble_are_shown_once() -> None:
    run = Programs({"journalctl": "error: x\nall is well\nerror: x\nMunge decode failed: Expired credential\n"})
    assert probe_facts.complaints(run, "slurmctld") == ["error: x", "Munge decode failed: Expired credential"]


def test_the_command_prints_what_was_asked_for_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    arguments = ["probe", "--resolve", "localhost", "--connect", f"{LOOPBACK}:{port}", "--seconds", "0.6"]
    assert command_line.main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"names", "meeting"}
    assert found["names"]["localhost"]["addresses"] == [LOOPBACK]
    assert found["meeting"]["connections"][0]["outcome"] == "refused"

"""Name resolution: /etc/hosts, the resolver of the VPC, and following the head."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_cluster.model.flows import Role
from slurm_cluster.runtime.node import dns, hosts, names, node_table, prolog
from slurm_cluster.runtime.node.commands import CommandError
from slurm_cluster.runtime.node.errors import NodeError
from slurm_cluster.runtime.node.node_table import NodeState
from tests.runtime.node_doubles import Clock, Programs, cluster_spec

SPEC = cluster_spec()

TABLE = """\
NodeName=cpu-static-1 Arch=x86_64 NodeAddr=10.0.0.11 NodeHostName=ip-10-0-0-11 Version=24.11.5 State=IDLE+CLOUD
NodeName=cpu-static-2 NodeAddr=cpu-static-2 NodeHostName=cpu-static-2 State=IDLE+CLOUD+POWERED_DOWN
NodeName=cpu-static-3 NodeAddr=10.0.0.13 NodeHostName=ip-10-0-0-13.eu.compute.internal State=IDLE+CLOUD

"""


def by_address(addresses: dict[str, str]) -> hosts.Entries:
    entries: hosts.Entries = {}
    for name, address in addresses.items():
        entries[address] = (*entries.get(address, ()), name)
    return entries


ENTRIES = st.dictionaries(
    st.sampled_from([f"n{number}" for number in range(8)]),
    st.sampled_from([f"10.0.0.{number}" for number in range(5)]),
).map(by_address)
LINES = st.lists(
    st.sampled_from(
        [
            "127.0.0.1 localhost",
            "# a comment",
            "",
            "127.0.1.1 ip-10-0-0-5.internal ip-10-0-0-5",
            "10.9.9.9 file-server",
            hosts.BEGIN,
            hosts.END,
        ]
    ),
    max_size=8,
)


@pytest.fixture
def hosts_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An /etc/hosts of the test's own, used by everything that updates the real one."""
    path = tmp_path / "hosts"
    path.write_text("127.0.0.1 localhost\n127.0.1.1 me.internal me\n::1 localhost\n")
    real = hosts.update

    def update(change: object, **_: object) -> bool:
        return real(change, hosts_file=path, lock_file=tmp_path / "lock")  # type: ignore[arg-type]

    monkeypatch.setattr(hosts, "update", update)
    monkeypatch.setattr(socket, "gethostname", lambda: "me")
    return path


@given(LINES, ENTRIES)
def test_rendering_twice_is_rendering_once_and_reads_back(lines: list[str], entries: hosts.Entries) -> None:
    text = hosts.render("\n".join(lines), entries)
    assert hosts.render(text, entries) == text
    assert hosts.parse(text) == entries


@given(LINES, ENTRIES, ENTRIES)
def test_other_lines_stay_in_order_whatever_the_block_becomes(
    lines: list[str], entries: hosts.Entries, others: hosts.Entries
) -> None:
    foreign = [line for line in lines if line not in (hosts.BEGIN, hosts.END)]
    text = hosts.render(hosts.render("".join(f"{line}\n" for line in foreign), entries), others)
    assert text.splitlines()[len(others) + 2 :] == foreign


def test_a_marker_without_its_partner_takes_nothing_with_it() -> None:
    text = hosts.render(f"{hosts.BEGIN}\n10.9.9.9 file-server\n", {"10.0.0.1": ("a",)})
    assert text == f"{hosts.BEGIN}\n10.0.0.1 a\n{hosts.END}\n10.9.9.9 file-server\n"


def test_debians_loopback_line_gives_up_the_machines_own_name_only() -> None:
    text = "127.0.1.1 me.internal me printer\n127.0.0.1 localhost\n10.0.0.1 me.elsewhere\n"
    rendered = hosts.render(text, {"10.0.0.1": ("me",)})
    assert rendered.splitlines()[3:] == ["127.0.1.1 printer", "127.0.0.1 localhost", "10.0.0.1 me.elsewhere"]
    alone = hosts.render("127.0.1.1 me.internal me\n", {"10.0.0.1": ("me",)})
    assert alone.splitlines()[3:] == []


@given(ENTRIES, ENTRIES)
def test_after_merging_a_name_has_one_address_the_newer_one(old: hosts.Entries, new: hosts.Entries) -> None:
    merged = hosts.merge(old, new)
    assert hosts.merge(merged, new) == merged
    for address, found in new.items():
        for name in found:
            owners = [key for key, values in merged.items() if name in values]
            assert owners == [address]
    assert {name for values in old.values() for name in values} <= {n for v in merged.values() for n in v}


def test_the_file_is_replaced_only_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("127.0.0.1 localhost\n")

    def update() -> bool:
        return hosts.update(lambda _: {"10.0.0.1": ("a",)}, hosts_file=path, lock_file=tmp_path / "lock")

    assert update()
    before = path.stat()
    assert not update()
    assert path.stat().st_ino == before.st_ino


def test_what_people_write_of_a_node_makes_no_names() -> None:
    fields = "NodeName=cpu-1 NodeAddr=10.0.0.7 NodeHostName=h State=DOWN"
    line = f"{fields} Comment=NodeName=cpu-2 Reason=NodeAddr=10.9.9.9 is old"
    assert names.node_table(line) == {"10.0.0.7": ("h", "cpu-1")}


def test_what_people_write_of_a_node_is_not_its_state() -> None:
    line = "NodeName=cpu-1 NodeAddr=10.0.0.7 NodeHostName=h State=IDLE Comment=State=DOWN NodeName=cpu-2 Reason=why not"
    (found,) = node_table.parse(line).items()
    assert found == ("cpu-1", NodeState(host="h", address="10.0.0.7", state="IDLE", reason="why not"))


def test_node_table_leaves_out_nodes_without_an_address() -> None:
    assert names.node_table(TABLE) == {
        "10.0.0.11": ("ip-10-0-0-11", "cpu-static-1"),
        "10.0.0.13": ("ip-10-0-0-13.eu.compute.internal", "ip-10-0-0-13", "cpu-static-3"),
    }


def test_head_knows_itself_and_every_worker(hosts_file: Path) -> None:
    names.ensure(Role.HEAD, SPEC, None, "10.0.0.5")
    run = Programs({"scontrol --oneliner show nodes": TABLE})
    known = names.head_entries(SPEC, "10.0.0.5")
    assert names.refresh_head(run, known)
    assert not names.refresh_head(run, known)
    assert hosts.parse(hosts_file.read_text()) == {
        "10.0.0.11": ("ip-10-0-0-11", "cpu-static-1"),
        "10.0.0.13": ("ip-10-0-0-13.eu.compute.internal", "ip-10-0-0-13", "cpu-static-3"),
        "10.0.0.5": ("me", SPEC.head_host),
    }
    assert "127.0.1.1" not in hosts_file.read_text()


def test_head_forgets_a_worker_that_has_another_address_now(hosts_file: Path) -> None:
    known = names.head_entries(SPEC, "10.0.0.5")
    names.refresh_head(Programs({"scontrol": TABLE}), known)
    names.refresh_head(Programs({"scontrol": TABLE.replace("10.0.0.11", "10.0.0.77")}), known)
    assert "10.0.0.11" not in hosts_file.read_text()
    assert "10.0.0.77 ip-10-0-0-11 cpu-static-1" in hosts_file.read_text()


def test_while_slurmctld_is_silent_the_names_stay(hosts_file: Path) -> None:
    known = names.head_entries(SPEC, "10.0.0.5")
    names.refresh_head(Programs({"scontrol": TABLE}), known)
    before = hosts_file.read_text()
    assert not names.refresh_head(Programs({"scontrol": CommandError("no answer")}), known)
    assert hosts_file.read_text() == before


def test_worker_follows_the_head_and_restarts_slurmd_once(hosts_file: Path) -> None:
    names.ensure(Role.WORKER, SPEC, "cpu-static-1", "10.0.0.11", head_address="10.0.0.5")
    run = Programs()
    assert not names.follow_head(run, SPEC, "cpu-static-1", "10.0.0.11", "10.0.0.5")
    assert run.calls == []
    assert names.follow_head(run, SPEC, "cpu-static-1", "10.0.0.11", "10.0.0.99")
    assert not names.follow_head(run, SPEC, "cpu-static-1", "10.0.0.11", "10.0.0.99")
    assert run.called("systemctl restart") == ["systemctl restart --no-block slurmd.service"]
    assert f"10.0.0.99 {SPEC.head_host}" in hosts_file.read_text()


def test_a_moved_head_does_not_start_a_slurmd_that_does_not_run(hosts_file: Path) -> None:
    names.ensure(Role.WORKER, SPEC, "cpu-static-1", "10.0.0.11", head_address="10.0.0.5")
    run = Programs({"systemctl is-active": 3})
    assert names.follow_head(run, SPEC, "cpu-static-1", "10.0.0.11", "10.0.0.99")
    assert run.called("systemctl restart") == []


def test_prolog_adds_the_nodes_of_the_job_and_keeps_the_head(hosts_file: Path) -> None:
    names.ensure(Role.WORKER, SPEC, "cpu-static-1", "10.0.0.11", head_address="10.0.0.5")
    run = Programs({"scontrol --oneliner show nodes cpu-static-[1,3]": TABLE})
    environment = {"SLURM_JOB_NODELIST": "cpu-static-[1,3]", "SLURMD_NODENAME": "cpu-static-1"}
    assert prolog.run_prolog(run, environment)
    assert not prolog.run_prolog(run, environment)
    found = hosts.parse(hosts_file.read_text())
    assert found["10.0.0.13"][-1] == "cpu-static-3"
    assert found["10.0.0.5"] == (SPEC.head_host,)
    # The service that keeps the worker's own names does not undo it.
    before = hosts_file.read_text()
    names.follow_head(run, SPEC, "cpu-static-1", "10.0.0.11", "10.0.0.5")
    assert hosts_file.read_text() == before


@pytest.mark.parametrize(
    ("node_list", "table", "started"),
    [
        ("cpu-static-1", "exit 1", False),
        ("cpu-static-[1,3]", f"cat <<'END'\n{TABLE.splitlines()[0]}\n\nEND", False),
        ("cpu-static-[1,3]", f"cat <<'END'\n{TABLE.splitlines()[0].replace('10.0.0.11', '10.0.0.12')}\nEND", True),
        ("cpu-static-[1,3]", f"cat <<'END'\n{TABLE}END", True),
        ("cpu-static-[1,3]", "exit 1", True),
    ],
    ids=["one node", "all known", "another address", "one unknown", "no answer"],
)
def test_prolog_starts_python_only_when_a_name_is_not_there(
    tmp_path: Path, node_list: str, table: str, started: bool
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "scontrol").write_text(f"#!/bin/sh\n{table}\n")
    (programs / "scontrol").chmod(0o755)
    known = tmp_path / "hosts"
    known.write_text("127.0.0.1 localhost\n10.0.0.11 ip-10-0-0-11 cpu-static-1 # a worker\n10.9.9.9 cpu-static-1\n")
    script = tmp_path / "prolog"
    script.write_text(prolog.SCRIPT.format(hosts=known, command="echo"))
    done = subprocess.run(
        ["sh", script],
        env={
            "PATH": f"{programs}:{os.environ['PATH']}",
            "SLURM_JOB_NODELIST": node_list,
            "SLURMD_NODENAME": "cpu-static-1",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ("prolog\n" if started else "")
    checker = Path(sys.executable).with_name("shellcheck")
    assert subprocess.run([checker, script], capture_output=True, text=True, check=False).stdout == ""


def test_prolog_does_not_load_boto3() -> None:
    """It runs before every job on several nodes: a second of imports would be a second of each."""
    program = "import sys; from slurm_cluster.runtime.node import __main__; print('boto3' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_prolog_outlives_a_restart_of_the_controller_and_not_its_loss(hosts_file: Path) -> None:
    environment = {"SLURM_JOB_NODELIST": "cpu-static-[1,3]", "SLURMD_NODENAME": "cpu-static-1"}
    clock = Clock()
    run = Programs({"scontrol": [CommandError("no answer"), CommandError("no answer"), TABLE]})
    assert prolog.run_prolog(run, environment, sleep=clock.sleep, clock=clock)
    with pytest.raises(NodeError, match=r"names of cpu-static-\[1,3\] are not known: no answer"):
        prolog.run_prolog(
            Programs({"scontrol": CommandError("no answer")}), environment, sleep=clock.sleep, clock=clock
        )


@pytest.fixture
def dns_server() -> Iterator[tuple[str, list[bytes]]]:
    """A server on loopback that knows one name, by an alias; first it sends somebody else's answer."""
    received: list[bytes] = []
    listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener.bind(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            question, peer = listener.recvfrom(512)
            if not question:
                return
            received.append(question)
            identifier = struct.unpack_from("!H", question)[0]
            known = b"\x04head" in question
            alias = b"\xc0\x0c" + struct.pack("!2HIH", 5, 1, 60, 4) + b"\x01x\xc0\x0c"
            address = b"\x01x\xc0\x0c" + struct.pack("!2HIH", 1, 1, 60, 4) + bytes([10, 0, 0, 5])
            body = question[12:] + (alias + address if known else b"")
            flags = 0x8180 if known else 0x8183
            listener.sendto(struct.pack("!6H", identifier ^ 1, flags, 1, 0, 0, 0) + question[12:], peer)
            listener.sendto(struct.pack("!6H", identifier, flags, 1, 2 if known else 0, 0, 0) + body, peer)

    thread = threading.Thread(target=serve)
    thread.start()
    yield str(listener.getsockname()[1]), received
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.sendto(b"", listener.getsockname())
    thread.join()
    listener.close()


def test_a_name_is_asked_for_on_the_wire(dns_server: tuple[str, list[bytes]], monkeypatch: pytest.MonkeyPatch) -> None:
    port, received = dns_server
    monkeypatch.setattr(dns, "_PORT", int(port))
    assert dns.ask("127.0.0.1", "head.0f0f0f0f.slurm.internal") == ["10.0.0.5"]
    assert dns.ask("127.0.0.1", "other.internal") == []
    assert received[0][12:] == b"\x04head\x080f0f0f0f\x05slurm\x08internal\0\0\x01\0\x01"


@given(st.binary(max_size=80))
def test_any_datagram_is_an_answer_or_a_value_error(message: bytes) -> None:
    with contextlib.suppress(ValueError):
        dns.decode_addresses(message, 7)


def test_servers_are_the_hosts_own_but_not_loopback_and_then_the_vpcs(tmp_path: Path) -> None:
    upstream, stub = tmp_path / "upstream", tmp_path / "stub"
    stub.write_text("search x\nnameserver 127.0.0.53\nnameserver fe80::1\n")
    assert dns.servers((upstream, stub)) == ["169.254.169.253"]
    upstream.write_text("nameserver 10.1.0.2\nnameserver 10.1.0.3\n")
    assert dns.servers((upstream, stub)) == ["10.1.0.2", "10.1.0.3", "169.254.169.253"]


def test_a_vpc_with_servers_of_its_own_is_helped_by_the_vpcs_resolver() -> None:
    asked = []

    def query(server: str, name: str) -> list[str]:
        asked.append(server)
        if server == "10.1.0.2":
            raise TimeoutError
        return ["10.0.0.5"] if server == "169.254.169.253" else []

    servers = ["10.1.0.2", "10.1.0.3", "169.254.169.253"]
    assert dns.resolve("head", from_servers=servers, query=query) == "10.0.0.5"
    assert asked == servers
    assert dns.resolve("head", from_servers=servers[:2], query=query) is None


def test_waiting_for_the_heads_record_ends_with_what_to_look_at() -> None:
    clock = Clock()
    answers = iter([None, None, "10.0.0.5"])
    assert names.wait_for_head(SPEC, resolve=lambda _: next(answers), sleep=clock.sleep, clock=clock) == "10.0.0.5"
    with pytest.raises(NodeError, match=r"no DNS server knows head\..*private zone must be associated"):
        names.wait_for_head(SPEC, resolve=lambda _: None, sleep=clock.sleep, clock=clock)

"""What a machine says of its disks, mounts, ports and Slurm, of which each can be wrong or hang."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_cluster.model.flows import PortRange, SlurmPorts
from slurm_cluster.runtime.node import host_facts, probe_connections, probe_facts, slurm_facts
from slurm_cluster.runtime.node.commands import CommandError
from tests.runtime.node_doubles import Programs

LOOPBACK = "127.0.0.1"
MOUNTS = """\
/dev/nvme0n1p1 / ext4 ro,relatime,errors=remount-ro 0 0
fs-1:/home /home nfs4 rw,vers=4.1 0 0
fs-1:/with\\040blank /with\\040blank nfs4 rw 0 0
/dev/loop0 /snap/x squashfs ro 0 0
/dev/sdb1 /data ext4 ro 0 0
/dev/sdc1 /reference ext4 ro 0 0
"""
FSTAB = """\
# comment
/dev/sdb1 /data ext4 defaults 0 2
/dev/sdc1 /reference ext4 ro 0 2
"""


@pytest.fixture
def mounted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, text in (("MOUNTS_FILE", MOUNTS), ("FSTAB_FILE", FSTAB)):
        path = tmp_path / name
        path.write_text(text)
        monkeypatch.setattr(host_facts, name, path)


def test_read_only_where_slurm_writes_or_where_fstab_says_otherwise(mounted: None) -> None:
    found = {item["mount"]: item["why"] for item in host_facts.read_only(["/var/log", "/home/x"])}
    assert set(found) == {"/", "/data"}
    assert found["/"] == "/var/log lies on it"
    assert "mounts it for writing" in found["/data"]


def test_paths_lie_on_their_nearest_mount(mounted: None) -> None:
    here = host_facts.mounts(MOUNTS)
    points = {
        path: mount.point
        for path in ("/home/me", "/homes", "/with blank/x")
        if (mount := host_facts.mount_of(path, here))
    }
    assert points == {"/home/me": "/home", "/homes": "/", "/with blank/x": "/with blank"}


def test_room_is_told_once_a_file_system_also_for_folders_that_are_not_there_yet(tmp_path: Path) -> None:
    found = host_facts.disks([str(tmp_path), str(tmp_path / "not" / "there")])
    assert len(found) == 1
    assert 0 < found[0]["available"] <= found[0]["size"]


def test_nothing_hangs_here() -> None:
    assert host_facts.hung() == []


@pytest.fixture
def dead_server(tmp_path: Path) -> Iterator[Path]:
    """A FUSE mount whose server never answers: whoever looks at it waits in the kernel, as with a dead file server."""
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        pytest.skip("mounting a file system without a server needs root and /dev/fuse")
    libc = ctypes.CDLL(None, use_errno=True)
    server = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0".encode()
    assert libc.mount(b"dead:/export", str(tmp_path).encode(), b"fuse", 0, options) == 0, os.strerror(
        ctypes.get_errno()
    )
    try:
        yield tmp_path
    finally:
        os.close(server)
        libc.umount2(str(tmp_path).encode(), 2)


def test_a_dead_file_server_is_told_in_time_and_holds_up_nobody(dead_server: Path) -> None:
    began = time.monotonic()
    found = probe_facts.gather(
        {"hung": host_facts.hung, "disks": lambda: host_facts.disks(["/", str(dead_server)])}, seconds=8
    )
    assert time.monotonic() - began < 7
    assert [(item["mount"], item["device"]) for item in found["hung"]] == [(str(dead_server), "dead:/export")]
    assert [item["path"] for item in found["disks"]] == ["/"]


def test_a_fact_that_does_not_come_is_given_up_and_the_others_are_had() -> None:
    began = time.monotonic()
    found = probe_facts.gather(
        {"slow": lambda: time.sleep(5), "quick": lambda: 1, "wrong": lambda: 1 // 0}, seconds=0.5
    )
    assert time.monotonic() - began < 2
    assert found["quick"] == 1
    assert found["slow"] == {"error": "no answer after 0.5 seconds"}
    assert "zero" in found["wrong"]["error"]


def test_ports_are_counted_by_listening_on_them() -> None:
    with contextlib.ExitStack() as held:
        first = next(port for port in range(20000, 30000) if all(_free(port + more) for more in range(6)))
        for port in (first, first + 1, first + 2):
            held.enter_context(socket.create_server(("", port)))
        found = host_facts.free_ports(PortRange(first, first + 5))
        assert found == {"range": f"{first}-{first + 5}", "size": 6, "enough": 4, "free": 3}
        assert host_facts.free_ports(PortRange(first, first + 9))["free"] == 4


def _free(port: int) -> bool:
    found = probe_connections.listener(port)
    if found is not None:
        found.close()
    return found is not None


def test_where_a_program_listens() -> None:
    own = Path("/proc/self/comm").read_text().strip()
    with socket.create_server(("127.0.0.1", 0)) as held, socket.create_connection(held.getsockname()) as opened:
        found = host_facts.listening(own)
        assert held.getsockname()[1] in found
        assert opened.getsockname()[1] not in found
    assert host_facts.listening("no such program") == []


def test_the_address_towards_a_machine() -> None:
    assert host_facts.address_towards(LOOPBACK) == LOOPBACK
    assert not any(address.startswith("127.") for address in host_facts.addresses())


@pytest.mark.skipif(os.geteuid() != 0, reason="ICMP needs root")
def test_ping() -> None:
    assert host_facts.answers_ping(LOOPBACK)
    assert not host_facts.answers_ping("255.255.255.255", seconds=0.3)


SETTINGS = """\
Configuration data as of 2026-11-30T22:27:00
AccountingStorageType   = (null)
HASH_VAL                = Match
SlurmctldHost[0]        = head(192.168.77.1)
SlurmctldPort           = 6820-6829
SlurmdPort              = 7818
SrunPortRange           = 60001-60100
SLURM_VERSION           = 24.11.5
"""


def test_settings_and_the_ports_in_them() -> None:
    found = slurm_facts.settings(Programs({"scontrol show config": SETTINGS}))
    assert slurm_facts.ports(found) == SlurmPorts(slurmctld=6820, slurmd=7818, srun=PortRange(60001, 60100))
    assert slurm_facts.value(found, "accountingstoragetype") == ""
    assert slurm_facts.ports({"SrunPortRange": "0-0"}) == SlurmPorts()
    # slurmctld does not start with these, and then the doctor is asked
    for wrong in ({"SrunPortRange": "60000-50000"}, {"SrunPortRange": "1-99999"}, {"SlurmctldPort": "70000"}):
        assert slurm_facts.ports(wrong) == SlurmPorts()
    assert slurm_facts.settings(Programs({"scontrol": 1})) == {}


def test_slurm_conf_itself_where_slurmctld_does_not_answer(tmp_path: Path) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text("# x\nSlurmctldHost=head # why\nSlurmdPort = 7818\nNodeName=n[1-4] CPUs=2\n")
    found = slurm_facts.local_settings(path)
    assert found["SlurmctldHost"] == "head"
    assert slurm_facts.ports(found).slurmd == 7818
    assert "NodeName" not in found


def test_another_slurm_conf_is_told_by_slurms_own_hash_with_the_lines_that_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text("ClusterName=a\n# only a comment\nDebugFlags=Steps\n")
    monkeypatch.setenv("SLURM_CONF", str(path))
    reference = ["ClusterName=a", "TreeWidth=4"]
    differs = Programs({"scontrol": SETTINGS.replace("Match", "Different Ours=0x23c63b06 Slurmctld=0x68807880")})
    assert slurm_facts.configuration(differs, reference) == {
        "match": False,
        "file": str(path),
        "differences": ["+ DebugFlags=Steps", "- TreeWidth=4"],
    }
    assert slurm_facts.configuration(Programs({"scontrol": SETTINGS}), reference) == {"match": True}
    assert slurm_facts.configuration(Programs({"scontrol": 1})) is None


@pytest.fixture
def named_process(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    program = tmp_path / "sc-daemond"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "60"]) as process:
        deadline = time.monotonic() + 5
        while not slurm_facts.process_state(program.name) and time.monotonic() < deadline:
            time.sleep(0.05)
        yield program.name, process
        process.kill()


def test_daemons_that_no_systemd_started_are_told_apart(
    named_process: tuple[str, subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    name, process = named_process
    none = Programs({"systemctl": CommandError("systemctl: not booted with systemd")})
    assert slurm_facts.daemon(none, name)["active"] == "active"
    process.send_signal(signal.SIGSTOP)
    deadline = time.monotonic() + 5
    while slurm_facts.process_state(name) != "T" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert slurm_facts.daemon(none, name)["active"] == "stopped"
    process.kill()
    process.wait()
    log = tmp_path / "log"
    log.write_text("[2026-11-30T22:34:49.046] error: once\n" + "fine\n" * 9 + "fatal: no cgroup\nbye\n")
    found = slurm_facts.daemon(none, name, log=str(log))
    assert (found["active"], found["journal"]) == ("inactive", "fatal: no cgroup")
    assert slurm_facts.last_error("/no/such/file") == ""


def test_a_unit_that_failed_says_so() -> None:
    shown = "ActiveState=failed\nSubState=failed\nResult=exit-code\nUnitFileState=enabled\n"
    found = slurm_facts.daemon(Programs({"systemctl show": shown, "journalctl": "fatal: x"}), "sc-no-such-daemon")
    assert (found["active"], found["journal"]) == ("failed", "fatal: x")


def test_a_meeting_ends_when_enough_was_seen() -> None:
    code = (
        "import threading, time; from slurm_cluster.runtime.node.probe_connections import *; "
        "end = threading.Event(); threading.Timer(0.5, end.set).start(); began = time.monotonic(); "
        "meet([], [Target('127.0.0.1', 1)], seconds=30, enough=end); print(time.monotonic() - began)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert float(done.stdout) < 3

"""What a killed owner leaves is found by the session's name and removed; another session's is not touched."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from slurm_cluster.rehearsal import leftovers
from slurm_cluster.rehearsal.cgroups import is_alive
from slurm_cluster.rehearsal.paths import SessionPaths
from tests.rehearsal.machine_bench import Bench, bench, boot, shell

pytestmark = pytest.mark.rehearsal

OWNER = """
import sys, time
from tests.rehearsal.machine_bench import bench, boot
from slurm_cluster.rehearsal.volume import Volume
with bench() as made:
    machine = made.machine("i-0d001")
    Volume(made.paths, "vol-0d1", size_gib=1).attach(machine)
    boot(machine)
    print("booted", made.paths.session, machine.pid1, flush=True)
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def living() -> Iterator[Bench]:
    with bench() as made:
        yield made


@dataclass(frozen=True)
class Orphan:
    paths: SessionPaths
    init: int


@pytest.fixture
def orphan() -> Iterator[Orphan]:
    """What an owner leaves that was killed while its machine ran."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdout=subprocess.PIPE,
        text=True,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": ":".join(sys.path)},
    )
    assert owner.stdout is not None
    session, init = next(line for line in owner.stdout if line.startswith("booted ")).split()[1:]
    assert is_alive(int(init))
    owner.kill()
    owner.wait()
    paths = SessionPaths(session)
    yield Orphan(paths, int(init))
    leftovers.remove(paths)
    subprocess.run(["ip", "netns", "delete", f"sc{session}-i-0d001"], check=True)
    shutil.rmtree(paths.root)
    paths.lock.unlink()


def test_machine_dies_with_its_owner(orphan: Orphan) -> None:
    deadline = time.monotonic() + 10
    while is_alive(orphan.init) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(orphan.init)


def test_what_a_killed_owner_left_is_found_and_removed(living: Bench, orphan: Orphan) -> None:
    mine = living.machine("i-0d002")
    boot(mine)
    kinds = {found.split()[0] for found in leftovers.find(orphan.paths)}
    # A group that systemd made ends with the last process in it.
    assert kinds | {"cgroup"} == {"cgroup", "mount", "loop", "directory"}
    assert leftovers.remove(orphan.paths)
    assert leftovers.find(orphan.paths) == []
    assert leftovers.remove(orphan.paths) == []
    assert shell(mine, "echo alive") == "alive\n"


def test_removal_ends_a_machine_that_still_runs() -> None:
    with bench() as made:
        machine = made.machine("i-0d003")
        boot(machine)
        init = machine.pid1
        leftovers.remove(made.paths)
        assert not is_alive(init)
        assert leftovers.find(made.paths) == []
        assert machine.poll() != 0

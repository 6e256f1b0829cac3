"""What a killed owner leaves is found by the session's name and removed; another session's is not touched."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from machine_bench import Bench, bench, boot, is_alive, shell

from slurm_cluster.rehearsal import leftovers

pytestmark = pytest.mark.rehearsal

OWNER = """
import sys, time
from machine_bench import bench, boot
from slurm_cluster.rehearsal.volume import Volume
with bench() as made:
    machine = made.machine("i-0d001")
    Volume(made.paths, "vol-0d1", size_gib=1).attach(machine)
    boot(machine)
    print(made.paths.session, machine.pid1, flush=True)
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def living() -> Iterator[Bench]:
    with bench() as made:
        yield made


def test_killed_owner_leaves_nothing_after_removal(living: Bench) -> None:
    mine = living.machine("i-0d002")
    boot(mine)
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdout=subprocess.PIPE,
        text=True,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": ":".join(sys.path)},
    )
    assert owner.stdout is not None
    *_, line = (text for text in iter(owner.stdout.readline, "") if text.count(" ") == 1 and not owner.kill())
    owner.wait()
    session, init = line.split()
    assert owner.returncode == -signal.SIGKILL
    assert is_alive(int(init)), "the machine outlives its owner until somebody cleans up"
    paths = type(living.paths)(session)
    kinds = {found.split()[0] for found in leftovers.find(paths)}
    assert kinds == {"cgroup", "mount", "loop", "directory"}
    assert leftovers.remove(paths)
    assert leftovers.find(paths) == []
    assert leftovers.remove(paths) == []
    assert not is_alive(int(init))
    assert shell(mine, "echo alive") == "alive\n"
    subprocess.run(["ip", "netns", "delete", f"sc{session}-i-0d001"], check=True)
    subprocess.run(["rm", "-r", str(paths.root), str(paths.lock)], check=True)

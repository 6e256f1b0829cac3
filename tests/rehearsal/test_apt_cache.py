"""The cache of Debian packages: one for all who hold it, gone when nobody does, however they end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_cluster.rehearsal import apt_cache_daemon
from slurm_cluster.rehearsal.apt_cache import AptCache, AptCacheError
from slurm_cluster.rehearsal.image import mirror

pytestmark = pytest.mark.rehearsal

SECONDS = 20


@pytest.fixture
def directory() -> Iterator[Path]:
    # not tmp_path, whose parents the cache's own user may not enter
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    yield made
    end = time.monotonic() + SECONDS
    while processes(made):
        assert time.monotonic() < end, f"still there: {processes(made)}"
        time.sleep(0.1)
    shutil.rmtree(made)


def processes(directory: Path) -> list[int]:
    """Return the processes of a cache: the daemon and apt-cacher-ng."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if str(directory).encode() in command and b"apt" in command:
            found.append(int(entry.name))
    return found


def fetch(port: int) -> bytes:
    proxy = urllib.request.ProxyHandler({"http": f"http://127.0.0.1:{port}"})
    url = f"{mirror.through_cache(mirror.mirror())}/dists/trixie/InRelease"
    with urllib.request.build_opener(proxy).open(url, timeout=SECONDS) as answer:
        body: bytes = answer.read()
        return body


def test_holders_share_one_that_keeps_what_was_fetched_and_runs_as_no_root(directory: Path) -> None:
    first = AptCache(directory)
    second = AptCache(directory)
    assert first.port == second.port
    assert b"Suite: stable" in fetch(first.port) or b"Codename: trixie" in fetch(first.port)
    assert list((directory / "packages").rglob("InRelease"))
    owners = {Path(f"/proc/{pid}").stat().st_uid for pid in processes(directory)}
    assert 0 in owners, "the daemon"
    assert len(owners) == 2, "apt-cacher-ng, which listens, has a user of its own"
    first.stop()
    time.sleep(1.5)
    assert fetch(second.port), "somebody holds it"
    second.stop()


def test_a_killed_holder_holds_nothing(directory: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from slurm_cluster.rehearsal.apt_cache import AptCache\n"
        "cache = AptCache(Path(sys.argv[1])); print(cache.port, flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", program, str(directory)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout
    assert int(holder.stdout.readline())
    holder.kill()
    holder.wait()
    holder.stdout.close()


def test_the_next_holder_starts_another_where_the_daemon_was_killed(directory: Path) -> None:
    first = AptCache(directory)
    daemon = next(pid for pid in processes(directory) if Path(f"/proc/{pid}").stat().st_uid == 0)
    os.kill(daemon, signal.SIGKILL)
    end = time.monotonic() + SECONDS
    while len(processes(directory)) > 1:  # this process is the parent of the killed one
        os.waitpid(-1, os.WNOHANG)
        assert time.monotonic() < end, "the kernel ends apt-cacher-ng with the daemon"
        time.sleep(0.1)
    second = AptCache(directory)
    assert fetch(second.port)
    first.stop()
    second.stop()


def test_one_that_cannot_start_says_why(directory: Path) -> None:
    (directory / "packages").write_text("in the way")
    with pytest.raises(AptCacheError, match=r"apt-cacher-ng did not start:(.|\n)*File exists"):
        AptCache(directory)


def test_what_upgrades_have_filled_is_emptied(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apt_cache_daemon, "_MOST_BYTES", 10)
    old = directory / "packages" / "old.deb"
    old.parent.mkdir()
    old.write_bytes(b"0" * 11)
    assert apt_cache_daemon._room(directory) == old.parent
    assert not old.exists()
    old.write_bytes(b"0" * 10)
    apt_cache_daemon._room(directory)
    assert old.exists()

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from slurm_cluster.rehearsal import cgroups, checks


@pytest.fixture(autouse=True)
def able(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that can rehearse."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(checks, "_which", lambda program: f"/usr/bin/{program}")
    monkeypatch.setattr(checks, "_has_overlay", lambda: True)
    monkeypatch.setattr(cgroups, "problems", list)
    monkeypatch.setattr(checks, "_LOOP_CONTROL", Path("/"))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10**12))


def test_a_machine_that_can_rehearse_has_no_problems() -> None:
    assert checks.problems() == []


def test_an_ordinary_user_is_told_to_be_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (problem,) = checks.problems()
    assert problem.startswith("not root: ")


def test_missing_programs_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_which", lambda program: None if program in ("systemd-nspawn", "nft") else program)
    (problem,) = checks.problems()
    assert problem == (
        "not installed: systemd-nspawn, nft; run `make deps`, "
        "or install the Debian packages systemd-container, nftables"
    )


def test_what_the_kernel_lacks_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_has_overlay", lambda: False)
    monkeypatch.setattr(cgroups, "problems", lambda: ["no cgroup hierarchy freezer"])
    monkeypatch.setattr(checks, "_LOOP_CONTROL", Path("/no/loop-control"))
    overlay, loop, groups = checks.problems()
    assert "overlayfs" in overlay
    assert loop.startswith("/no/loop-control is missing")
    assert groups == "no cgroup hierarchy freezer"


def test_a_full_disk_is_told_once_for_a_file_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(checks, "STATE_ROOT", tmp_path / "state" / "not-yet")
    monkeypatch.setattr(checks, "cache_dir", lambda: tmp_path / "cache")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1_500_000_000))
    (problem,) = checks.problems()
    assert problem.startswith(f"{tmp_path} has 1.5 GB free, 5 GB are needed: ")

"""The node image: made once, shared, whole or not there."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from slurm_cluster.rehearsal import cgroups
from slurm_cluster.rehearsal.image import build as image_build
from slurm_cluster.rehearsal.image import ensure_baked_image, recipe
from slurm_cluster.rehearsal.paths import CACHE_VARIABLE

pytestmark = pytest.mark.rehearsal


@pytest.fixture(scope="module")
def image() -> Path:
    return ensure_baked_image(print)


@pytest.fixture
def other_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    return tmp_path / "images"


def test_second_caller_gets_the_same_image_at_once(image: Path) -> None:
    lines: list[str] = []
    began = time.monotonic()
    assert ensure_baked_image(lines.append) == image
    assert time.monotonic() - began < 5
    assert lines == []


def test_every_package_is_installed(image: Path) -> None:
    status = (image / "var/lib/dpkg/status").read_text()
    installed = {
        block.splitlines()[0].removeprefix("Package: ")
        for block in status.split("\n\n")
        if "\nStatus: install ok installed" in block
    }
    assert set(recipe.packages(recipe.ImageKind.BAKED)) <= installed


def test_nothing_in_it_would_be_the_same_on_two_nodes(image: Path) -> None:
    assert (image / "etc/machine-id").read_text() == ""
    for path in ("var/lib/dbus/machine-id", "etc/hostname", "etc/munge/munge.key", "etc/resolv.conf"):
        assert not (image / path).exists(), path
    assert not list((image / "etc/ssh").glob("ssh_host_*"))


def test_it_holds_no_package_lists(image: Path) -> None:
    assert not list((image / "var/lib/apt/lists").glob("*Packages*"))
    assert not list((image / "var/cache/apt/archives").glob("*.deb"))


def test_packages_start_their_services_on_nodes(image: Path) -> None:
    assert not (image / "usr/sbin/policy-rc.d").exists()


def test_units_wait_for_bootstrap(image: Path) -> None:
    wanted = image / "etc/systemd/system/multi-user.target.wants"
    enabled = {path.name for path in wanted.iterdir()}
    assert not enabled & set(recipe.DISABLED_UNITS)
    assert set(recipe.ENABLED_UNITS) <= enabled
    for unit in recipe.MASKED_UNITS:
        assert (image / "etc/systemd/system" / unit).readlink() == Path("/dev/null")


def test_files_are_roots_and_as_in_the_recipe(image: Path) -> None:
    for path, source in recipe.files(cgroups.version()).items():
        copy = image / path
        assert copy.read_text() == source.read_text()
        assert (copy.stat().st_uid, copy.stat().st_mode & 0o777) == (0, 0o644)


def test_two_callers_make_one_image(other_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builds: list[Path] = []

    def slow_build(image: Path, *_: object) -> None:
        builds.append(image)
        time.sleep(0.5)
        image.mkdir()

    monkeypatch.setattr(image_build, "_build", slow_build)
    found: list[Path] = []
    said: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(ensure_baked_image(said.append))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [builds[0]] * 2
    assert len(builds) == 1
    assert "waiting for another session that builds the node image" in said


def test_build_that_fails_leaves_no_image_and_the_next_one_clears_it(
    other_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CLUSTER_REHEARSAL_MIRROR", "http://127.0.0.1:9/debian")
    with pytest.raises(image_build.ImageError, match="debootstrap ended with status"):
        ensure_baked_image(print)
    assert [path.suffix for path in other_cache.iterdir() if path.is_dir()] in ([], [".building"])
    old, used = other_cache / "trixie-old", other_cache / "trixie-used"
    for path in (old, used):
        path.mkdir()
    os.utime(old, (0, 0))
    monkeypatch.setattr(image_build, "_build", lambda image, *_: image.mkdir())
    made = ensure_baked_image(print)
    assert {path for path in other_cache.iterdir() if path.is_dir()} == {made, used}

"""Rules over the whole tree that no linter knows."""

from __future__ import annotations

import re
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[2]
MAX_LINES = 400
MADE_BY_PROGRAMS = {"package-lock.json"}
MADE_FOLDERS = {"__snapshots__", "baselines"}
# written in parts, so that this file does not match itself
BUILD_MACHINE = re.compile("/wo" + "rk/(main|shared|plan)|--(extra-)?index" + '-url|"reso' + 'lved": *"http')


def tree() -> list[Path]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for path in (ROOT / name for name in listed.split("\0") if name) if path.is_file()]


def texts() -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in tree()}


def test_no_file_is_too_long_to_have_one_job() -> None:
    too_long = {
        str(path.relative_to(ROOT)): text.count("\n")
        for path, text in texts().items()
        if path.name not in MADE_BY_PROGRAMS and not MADE_FOLDERS & set(path.parts) and text.count("\n") > MAX_LINES
    }
    assert not too_long


def test_nothing_names_the_machine_that_it_was_written_on() -> None:
    found = {
        str(path.relative_to(ROOT)): match[0] for path, text in texts().items() if (match := BUILD_MACHINE.search(text))
    }
    assert not found


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path, text in texts().items()
        if path.suffix == ".py" and text and ROOT / "tests" not in path.parents and not text.startswith('"""')
    ]
    assert not silent


def test_test_files_have_names_of_their_own() -> None:
    names = [path.name for path in tree() if path.match("test_*.py")]
    assert sorted(names) == sorted(set(names))


def test_changelog_has_the_version_of_the_package() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert re.search(rf"^## \[?{re.escape(version)}\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    (built,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("wheel")), versions=["standard"])
    with zipfile.ZipFile(built) as wheel:
        return set(wheel.namelist())


def test_wheel_holds_every_file_of_the_package_and_no_compiled_one(wheel_names: set[str]) -> None:
    package = {str(path.relative_to(ROOT)) for path in tree() if ROOT / "slurm_cluster" in path.parents}
    assert {name for name in wheel_names if name.startswith("slurm_cluster/")} == package
    assert "slurm_cluster/py.typed" in wheel_names


def test_wheel_holds_nothing_beside_the_package(wheel_names: set[str]) -> None:
    beside = {name.split("/")[0] for name in wheel_names if not name.startswith("slurm_cluster/")}
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert beside == {f"slurm_cluster-{version}.dist-info"}

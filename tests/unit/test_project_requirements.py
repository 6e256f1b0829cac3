"""The requirement files: pinned, explained, and inside the ranges that the library gives its users."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
FILES = ("requirements.txt", "requirements-dev.txt")


def requirement_lines(name: str) -> list[str]:
    lines = (ROOT / name).read_text().splitlines()
    return [line for line in lines if line and not line.startswith(("#", "-r "))]


def pins() -> dict[str, Requirement]:
    found = [Requirement(line.split("#")[0].strip()) for name in FILES for line in requirement_lines(name)]
    return {canonicalize_name(item.name): item for item in found}


@pytest.mark.parametrize("name", FILES)
def test_every_requirement_says_why_it_is_there(name: str) -> None:
    without_reason = [line for line in requirement_lines(name) if len(line.partition("#")[2].split()) < 2]
    assert not without_reason


def test_every_requirement_is_pinned_and_installed_as_pinned() -> None:
    for name, requirement in pins().items():
        (specifier,) = requirement.specifier
        assert specifier.operator == "=="
        assert specifier.contains(importlib.metadata.version(name)), f"{requirement} is not what is installed"


def test_installed_packages_agree_with_each_other() -> None:
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_pins_are_inside_the_ranges_of_the_library() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ranges = [Requirement(text) for text in project["dependencies"]]
    ranges += [Requirement(text) for texts in project["optional-dependencies"].values() for text in texts]
    for wanted in ranges:
        if wanted.name == project["name"]:
            continue  # an extra that has another one in it
        (pin,) = pins()[canonicalize_name(wanted.name)].specifier
        assert wanted.specifier.contains(pin.version), f"{wanted} does not admit the pin {pin}"
        assert any(item.operator == "<" for item in wanted.specifier), f"{wanted} has no upper end"


def test_apps_elsewhere_import_the_tree_once_dependencies_are_made(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", "import slurm_cluster.rehearsal"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"run `make deps` again: {done.stderr}"

"""scripts/system-packages with apt and dpkg replaced by programs that write down how they were called."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOBODY = 65534
TOOLS = ("bash", "env", "sed", "grep", "tr", "dirname")


class Machine:
    """The script and its list under ``root``, a PATH with only what the script needs, and a dpkg of our own."""

    def __init__(self, root: Path) -> None:
        self.bin = root / "bin"
        self.script = root / "scripts" / "system-packages"
        self.calls = root / "calls"
        self.installed = root / "installed"
        self.bin.mkdir()
        self.script.parent.mkdir()
        shutil.copy(ROOT / "requirements-system.txt", root)
        shutil.copy(ROOT / "scripts" / "system-packages", self.script)
        for tool in TOOLS:
            (self.bin / tool).symlink_to(str(shutil.which(tool)))

    def with_apt(self, *installed: str) -> None:
        self.installed.write_text("\n".join(installed) + "\n")
        self._add("apt-get", f'echo "$*" >>{self.calls}')
        self._add("dpkg-query", f'grep -qx -- "${{!#}}" {self.installed} && printf installed')

    def _add(self, name: str, body: str) -> None:
        program = self.bin / name
        program.write_text(f"#!/usr/bin/env bash\n{body}\n")
        program.chmod(0o755)

    def run(self, *, user: int = os.geteuid()) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": str(self.bin)}
        return subprocess.run(
            [str(self.script)], env=environment, user=user, capture_output=True, text=True, check=False
        )

    def apt_calls(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []


@pytest.fixture
def machine() -> Iterator[Machine]:
    # not tmp_path, whose parents an ordinary user may not enter
    with tempfile.TemporaryDirectory() as root:
        Path(root).chmod(0o755)
        yield Machine(Path(root))


def wanted() -> list[str]:
    lines = (ROOT / "requirements-system.txt").read_text().splitlines()
    return [line.split("#")[0].strip() for line in lines if line and not line.startswith(("#", "["))]


def ordinary_user() -> int:
    return os.geteuid() or NOBODY


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as root")
def test_root_installs_what_is_missing_and_nothing_else(machine: Machine) -> None:
    machine.with_apt(*wanted()[1:])
    assert machine.run().returncode == 0
    update, install = machine.apt_calls()
    assert update.endswith(" update")
    assert install.endswith(f"--no-install-recommends {wanted()[0]}")


def test_nothing_is_called_when_nothing_is_missing(machine: Machine) -> None:
    machine.with_apt(*wanted())
    done = machine.run()
    assert (done.returncode, done.stdout, machine.apt_calls()) == (0, "", [])


def test_ordinary_user_is_told_what_to_install_and_goes_on_without_the_rehearsal(machine: Machine) -> None:
    machine.with_apt(*(name for name in wanted() if name != "nftables"))
    done = machine.run(user=ordinary_user())
    assert (done.returncode, machine.apt_calls()) == (0, [])
    assert "sudo apt-get install nftables" in done.stdout


def test_ordinary_user_is_stopped_when_nothing_can_work(machine: Machine) -> None:
    machine.with_apt(*(name for name in wanted() if name != "python3-venv"))
    done = machine.run(user=ordinary_user())
    assert (done.returncode, machine.apt_calls()) == (1, [])
    assert "sudo apt-get install python3-venv" in done.stdout


def test_without_apt_it_says_what_is_needed_and_lets_the_rest_go_on(machine: Machine) -> None:
    done = machine.run()
    assert done.returncode == 0
    assert "Python 3.11" in done.stdout
    assert "systemd-container" in done.stdout

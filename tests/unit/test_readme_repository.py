"""README's project of four files: its snapshot test passes and notices a change; tests/rehearsal runs all of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests import readme_repository


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # the plug-in, which an installation of the package would bring
    command = [sys.executable, "-m", "pytest", "-m", "not rehearsal"]
    return subprocess.run([*command, *arguments], cwd=folder, capture_output=True, text=True, check=False)


def test_the_four_files_are_found() -> None:
    assert set(readme_repository.files()) == {"app.py", "requirements.txt", "test_jobs.py", "test_template.py"}
    assert len(readme_repository.commands()) == 4


def test_the_snapshot_test_passes_and_notices_a_change(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    readme_repository.write(folder)
    first = run(folder, "--snapshot-update")
    assert first.returncode == 0, first.stdout
    assert "1 deselected" in first.stdout
    (snapshot,) = folder.rglob("__snapshots__/**/*.json")
    snapshot.write_text(snapshot.read_text().replace("6817", "6816"))
    changed = run(folder)
    assert changed.returncode == 1, changed.stdout
    assert "6817" in changed.stdout

"""The same source gives the same bytes, wherever and however Python runs."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

_COPIED = ("app.py", "cdk.json", "slurm_cluster")
_JSII_DIRECTORY = re.compile(rb"jsii-kernel-\w{6}")
"""Where jsii unpacked itself; CDK's stack traces, which are not deployed, name it."""


def _synthesize(directory: Path, hash_seed: str, *, compile_first: bool = False) -> dict[str, str]:
    """Run app.py in a copy of the tree and return the digest of every file of its cloud assembly."""
    directory.mkdir()
    for name in _COPIED:
        source = Path(name)
        if source.is_dir():
            shutil.copytree(source, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, directory / name)
    if compile_first:
        subprocess.run([sys.executable, "-m", "compileall", "-q", "slurm_cluster"], cwd=directory, check=True)
        assert list(directory.glob("slurm_cluster/runtime/*/**/*.pyc"))
    output = directory / "cdk.out"
    environment = {
        **os.environ,
        "PYTHONHASHSEED": hash_seed,
        "CDK_OUTDIR": str(output),
        "CDK_CONTEXT_JSON": json.dumps(json.loads(Path("cdk.json").read_text())["context"]),
    }
    subprocess.run([sys.executable, "app.py"], cwd=directory, env=environment, check=True)
    return {
        str(path.relative_to(output)): hashlib.sha256(_JSII_DIRECTORY.sub(b"", path.read_bytes())).hexdigest()
        for path in sorted(output.rglob("*"))
        if path.is_file()
    }


def test_two_directories_and_two_hash_seeds_give_equal_bytes(tmp_path: Path) -> None:
    first = _synthesize(tmp_path / "first", "1")
    # compiled files beside the sources, as pip leaves them, must not reach an asset
    second = _synthesize(tmp_path / "somewhere else", "2", compile_first=True)
    assert "SlurmCluster.template.json" in first
    assert any(name.endswith("slurm_cluster/runtime/node/bootstrap.py") for name in first)
    assert second == first

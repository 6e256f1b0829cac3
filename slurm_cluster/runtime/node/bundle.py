"""The node programs themselves: which version the stack names, and bringing it onto the machine.

User data does the same once, on the first boot. It can never change; this can.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from slurm_cluster.model.node_files import COMMAND, DOCTOR_COMMAND, INSTALL_DIR
from slurm_cluster.model.spec import BundleSpec
from slurm_cluster.runtime.node import files
from slurm_cluster.runtime.node.aws import patiently

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

CURRENT = "current"
_COMMAND_TEXT = """\
#!/bin/sh
exec env PYTHONPATH={current} python3 -P -m {module} "$@"
"""


def stem(spec: BundleSpec) -> str:
    """Return the name of a bundle's directory: its object's name without the ending, which is a hash."""
    return PurePosixPath(spec.key).stem


def ensure(s3: S3Client, spec: BundleSpec, *, install_dir: Path = INSTALL_DIR) -> bool:
    """Have the programs of ``spec`` unpacked and in use; return whether they were not before."""
    target = install_dir / stem(spec)
    current = install_dir / CURRENT
    if current.is_symlink() and current.readlink() == Path(target.name) and target.is_dir():
        return False
    if not target.is_dir():
        _unpack(s3, spec, target)
    link = install_dir / f".{CURRENT}.new"
    link.unlink(missing_ok=True)
    link.symlink_to(target.name)
    link.replace(current)
    return True


def _unpack(s3: S3Client, spec: BundleSpec, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(dir=target.parent, prefix=".new-"))
    try:
        archive = staging / "bundle.zip"
        patiently(
            f"download the node bundle s3://{spec.bucket}/{spec.key}",
            lambda: s3.download_file(spec.bucket, spec.key, str(archive)),
        )
        with zipfile.ZipFile(archive) as stream:
            stream.extractall(staging)
        archive.unlink()
        staging.chmod(0o755)
        staging.replace(target)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise


def write_command(*, command: Path = COMMAND, install_dir: Path = INSTALL_DIR) -> bool:
    """Write the entry points of the programs, the doctor's beside ``command``; return whether one changed."""
    doctor = command.with_name(DOCTOR_COMMAND.name)
    modules = {command: "slurm_cluster.runtime.node", doctor: "slurm_cluster.doctor"}
    current = install_dir / CURRENT
    changed = [
        path
        for path, module in modules.items()
        if files.replace(path, _COMMAND_TEXT.format(current=current, module=module), mode=0o755)
    ]
    return bool(changed)


def run_again(arguments: list[str], *, command: Path = COMMAND) -> None:
    """Replace this process by the same command of the bundle now in use; does not return."""
    os.execv(str(command), [str(command), *arguments])  # noqa: S606 - our own program, no shell

"""The programs that run on nodes, as an asset."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from aws_cdk import aws_s3_assets as assets
from constructs import Construct

_PACKAGE = Path(__file__).parent
_CONTENT = ("__init__.py", "model", "runtime/__init__.py", "runtime/node")


def define_node_bundle(scope: Construct, construct_id: str) -> assets.Asset:
    """Define the archive that nodes unpack: the part of this package that they run, importable as ``slurm_cluster``."""
    with tempfile.TemporaryDirectory() as staging:
        for relative in _CONTENT:
            source, target = _PACKAGE / relative, Path(staging, _PACKAGE.name, relative)
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                # compiled files differ between machines and would change the asset's hash
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
            else:
                shutil.copyfile(source, target)
        # the files are copied into the cloud assembly here, so that the staging folder can go
        return assets.Asset(scope, construct_id, path=staging)

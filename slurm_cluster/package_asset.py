"""Parts of this package as assets: what nodes and functions run, importable there as ``slurm_cluster``."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from aws_cdk import aws_s3_assets as assets
from constructs import Construct

_PACKAGE = Path(__file__).parent
_FUNCTIONS = ("__init__.py", "runtime/__init__.py", "runtime/functions/__init__.py", "runtime/functions/answer.py")


def define_package_asset(scope: Construct, construct_id: str, content: Sequence[str]) -> assets.Asset:
    """Define an archive of files and folders of this package.

    Args:
        scope: parent construct.
        construct_id: id in the parent.
        content: paths in the package.
    """
    with tempfile.TemporaryDirectory() as staging:
        for relative in content:
            source, target = _PACKAGE / relative, Path(staging, _PACKAGE.name, relative)
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                # compiled files differ between machines and would change the asset's hash
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
            else:
                shutil.copyfile(source, target)
        # the files are copied into the cloud assembly here, so that the staging folder can go
        return assets.Asset(scope, construct_id, path=staging)


def define_function_code(scope: Construct, construct_id: str, *content: str) -> assets.Asset:
    """Define the code of a custom resource's function: ``content``, and what all of them answer with."""
    return define_package_asset(scope, construct_id, (*_FUNCTIONS, *content))

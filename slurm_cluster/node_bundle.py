"""The programs that run on nodes, as an asset."""

from __future__ import annotations

from pathlib import Path

from aws_cdk import aws_s3_assets as assets
from constructs import Construct

from slurm_cluster.package_asset import define_package_asset

_CONTENT = (
    *("__init__.py", "model", "doctor", "runtime/node"),
    *(f"runtime/{module.name}" for module in sorted(Path(__file__).parent.glob("runtime/*.py"))),
)
"""The node programs, and the doctor with the verdicts that it makes."""


def define_node_bundle(scope: Construct, construct_id: str) -> assets.Asset:
    """Define the archive that nodes unpack: the part of this package that they run."""
    return define_package_asset(scope, construct_id, _CONTENT)

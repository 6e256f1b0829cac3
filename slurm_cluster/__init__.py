"""AWS CDK v2 constructs for Slurm clusters on EC2.

The public names are loaded when they are first used, so that the parts which run without aws_cdk (``model``, the node
programs, the rehearsal) do not pay for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slurm_cluster.cluster import SlurmCluster as SlurmCluster
    from slurm_cluster.foundation import ClusterFoundation as ClusterFoundation
    from slurm_cluster.head_node import HeadNode as HeadNode
    from slurm_cluster.image import PinnedImage as PinnedImage
    from slurm_cluster.model.flows import PortRange as PortRange
    from slurm_cluster.network import ClusterNetwork as ClusterNetwork
    from slurm_cluster.operating_system import OperatingSystem as OperatingSystem
    from slurm_cluster.partition import Partition as Partition
    from slurm_cluster.slurm_reachability import SlurmReachability as SlurmReachability
    from slurm_cluster.smoke_test import OnUpdate as OnUpdate
    from slurm_cluster.smoke_test import SmokeTest as SmokeTest

_MODULES = {
    "ClusterFoundation": "foundation",
    "ClusterNetwork": "network",
    "HeadNode": "head_node",
    "OnUpdate": "smoke_test",
    "OperatingSystem": "operating_system",
    "Partition": "partition",
    "PinnedImage": "image",
    "PortRange": "model.flows",
    "SlurmCluster": "cluster",
    "SlurmReachability": "slurm_reachability",
    "SmokeTest": "smoke_test",
}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])

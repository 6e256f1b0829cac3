"""The desired state of the cluster, read from its SSM parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_cluster.model.spec import (
    BUNDLE_PARAMETER,
    CLUSTER_PARAMETER,
    PARTITIONS_PATH,
    BundleSpec,
    ClusterSpec,
    PartitionSpec,
)
from slurm_cluster.runtime.node.aws import patiently

if TYPE_CHECKING:
    from types_boto3_ssm import SSMClient


def _value(ssm: SSMClient, name: str) -> str:
    answer = patiently(f"read SSM parameter {name}", lambda: ssm.get_parameter(Name=name))
    return answer["Parameter"]["Value"]


def bundle(ssm: SSMClient, path: str) -> BundleSpec:
    """Return where the node programs are."""
    return BundleSpec.from_json(_value(ssm, f"{path}/{BUNDLE_PARAMETER}"))


def cluster(ssm: SSMClient, path: str) -> ClusterSpec:
    """Return what every node is told."""
    return ClusterSpec.from_json(_value(ssm, f"{path}/{CLUSTER_PARAMETER}"))


def partitions(ssm: SSMClient, path: str) -> tuple[PartitionSpec, ...]:
    """Return the cluster's partitions by name; a cluster may have none yet."""

    def read() -> list[str]:
        pages = ssm.get_paginator("get_parameters_by_path").paginate(Path=f"{path}/{PARTITIONS_PATH}")
        return [parameter["Value"] for page in pages for parameter in page["Parameters"]]

    values = patiently(f"read SSM parameters below {path}/{PARTITIONS_PATH}", read)
    return tuple(sorted((PartitionSpec.from_json(value) for value in values), key=lambda item: item.name))

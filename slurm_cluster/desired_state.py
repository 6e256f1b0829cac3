"""What the nodes are told, as SSM parameters under one path of the cluster."""

from __future__ import annotations

from typing import Any

from aws_cdk import ScopedAws, Stack
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from slurm_cluster.model.spec import (
    BUNDLE_PARAMETER,
    CLUSTER_PARAMETER,
    PARTITIONS_PATH,
    BundleSpec,
    ClusterSpec,
    PartitionSpec,
)


class DesiredState(Construct):
    """Parameters that CloudFormation writes and nodes read, so that tokens in them are resolved.

    Depend on the whole construct, as the head does, or on ``shared``, which is what workers read.

    Args:
        scope: parent construct.
        construct_id: id in the parent.
        address: part of the path that is unique among the clusters of a stack.
    """

    def __init__(self, scope: Construct, construct_id: str, *, address: str) -> None:
        super().__init__(scope, construct_id)
        # scoped, so that a partition in another stack is told this stack's name and not its own
        self.path = f"/slurm-cluster/{ScopedAws(self).stack_name}/{address}"
        self.shared = Construct(self, "Shared")
        self._partitions = Construct(self, "Partitions")

    def publish_bundle(self, spec: BundleSpec) -> None:
        """Tell every node where its programs are."""
        self._parameter(self.shared, "Bundle", BUNDLE_PARAMETER, spec.to_dict(), "Node programs")

    def publish_cluster(self, spec: ClusterSpec) -> None:
        """Tell every node what its cluster is."""
        self._parameter(self.shared, "Cluster", CLUSTER_PARAMETER, spec.to_dict(), "Slurm cluster")

    @property
    def has_cluster(self) -> bool:
        """Whether the nodes are told what their cluster is; its head node does that."""
        return self.shared.node.try_find_child("Cluster") is not None

    def publish_partition(self, spec: PartitionSpec) -> None:
        """Tell the head of one partition."""
        self._parameter(
            self._partitions,
            spec.name,
            f"{PARTITIONS_PATH}/{spec.name}",
            spec.to_dict(),
            f"Slurm partition {spec.name}",
        )

    def arns(self, *names: str) -> list[str]:
        """Return the ARNs of the parameters ``names`` below the path; ``*`` may stand for any."""
        stack = Stack.of(self)
        return [
            stack.format_arn(service="ssm", resource="parameter", resource_name=f"{self.path[1:]}/{name}")
            for name in names
        ]

    def _parameter(
        self, scope: Construct, construct_id: str, name: str, value: dict[str, Any], description: str
    ) -> None:
        ssm.StringParameter(
            scope,
            construct_id,
            parameter_name=f"{self.path}/{name}",
            simple_name=False,
            string_value=Stack.of(self).to_json_string(value),
            description=description,
        )

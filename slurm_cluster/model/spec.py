"""What the nodes are told: frozen dataclasses and their JSON form in SSM parameters.

CloudFormation writes the parameters, so values such as a secret's ARN are already resolved when a node reads them.
One parameter describes the cluster, one describes each partition, and one points to the node bundle; a standard SSM
parameter holds 4 KB (https://docs.aws.amazon.com/systems-manager/latest/userguide/parameter-store-advanced-parameters.html).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

from slurm_cluster.model.flows import PortRange, SlurmPorts

BUNDLE_PARAMETER = "bundle"
CLUSTER_PARAMETER = "cluster"
PARTITIONS_PATH = "partitions"


class _Json:
    """JSON form of a dataclass: one object, one member a field, nothing unknown and nothing missing."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object as a dict; unresolved CDK tokens stay in it as they are."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]  # every subclass is a dataclass

    def to_json(self) -> str:
        """Return the JSON text that ``from_json`` reads."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what ``to_json`` wrote.

        Raises:
            ValueError: the text is not a JSON object with exactly this class's fields.
        """
        value = json.loads(text)
        known = {item.name for item in fields(cls)}  # type: ignore[arg-type]  # every subclass is a dataclass
        if not isinstance(value, dict) or set(value) != known:
            got = sorted(value) if isinstance(value, dict) else type(value).__name__
            raise ValueError(f"{cls.__name__} has {got}, expected exactly {sorted(known)}: deploy the stack again")
        return cls._from_dict(value)

    @classmethod
    def _from_dict(cls, value: Mapping[str, Any]) -> Self:
        return cls(**value)


@dataclass(frozen=True, kw_only=True)
class BundleSpec(_Json):
    """Where the node programs are: an object in the CDK asset bucket."""

    bucket: str
    key: str


@dataclass(frozen=True, kw_only=True)
class ClusterSpec(_Json):
    """What every node of a cluster is told.

    Args:
        cluster_id: unique per deployed cluster in its account and Region; value of the tag ``slurm-cluster:cluster``.
        cluster_name: slurm.conf's ClusterName.
        head_host: DNS name under which workers reach the head.
        munge_key_secret_arn: Secrets Manager secret whose string is the munge key.
        state_volume_id: EBS volume that holds the head's state.
        job_user: name of the operating system's default user, uid 1000, as whom jobs are run.
        job_credentials: whether ordinary users may reach the instance metadata, and with it the instance role.
        ports: Slurm's ports.
    """

    cluster_id: str
    cluster_name: str
    head_host: str
    munge_key_secret_arn: str
    state_volume_id: str
    job_user: str
    job_credentials: bool
    ports: SlurmPorts = field(default_factory=SlurmPorts)

    @classmethod
    def _from_dict(cls, value: Mapping[str, Any]) -> Self:
        ports = dict(value["ports"])
        ports["srun"] = PortRange(**ports["srun"])
        return cls(**{**value, "ports": SlurmPorts(**ports)})


@dataclass(frozen=True, kw_only=True)
class PartitionSpec(_Json):
    """What the head is told of one partition.

    Args:
        name: partition name in slurm.conf.
        instance_type: EC2 instance type of its workers; CPUs, memory and GPUs follow from it on the head.
        static_nodes: number of workers that always run.
        default: whether jobs that name no partition go here (slurm.conf(5) Default).
    """

    name: str
    instance_type: str
    static_nodes: int
    default: bool

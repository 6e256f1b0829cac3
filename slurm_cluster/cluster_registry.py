"""Which constructs of an app are the nodes of which cluster, for what looks at the app as a whole.

Kept as metadata of the tree's root, which no template and no manifest shows: objects in Python may be gone when the app
is synthesized.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from constructs import Construct, IConstruct

from slurm_cluster.model.flows import PortRange, Role, SlurmPorts

_CLUSTER = "slurm-cluster:cluster"
_NODE = "slurm-cluster:node"


@dataclass(frozen=True, kw_only=True)
class RegisteredCluster:
    """A cluster of an app: its security groups by role, its nodes by role, and its ports."""

    path: str
    ports: SlurmPorts
    groups: dict[Role, IConstruct]
    nodes: dict[Role, list[IConstruct]] = field(default_factory=dict)


def register_cluster(
    security: Construct, *, ports: SlurmPorts, head_group: IConstruct, worker_group: IConstruct
) -> None:
    """Take up a cluster, known by the construct of its security groups."""
    groups = {Role.HEAD: head_group.node.path, Role.WORKER: worker_group.node.path}
    data = {"path": security.node.path, "groups": groups, "ports": asdict(ports)}
    security.node.root.node.add_metadata(_CLUSTER, data)


def register_node(security: Construct, instance: Construct, *, role: Role) -> None:
    """Take up an instance as a node of a cluster."""
    data = {"cluster": security.node.path, "role": role, "path": instance.node.path}
    security.node.root.node.add_metadata(_NODE, data)


def registered_clusters(root: IConstruct) -> list[RegisteredCluster]:
    """Return the clusters of an app, without what was taken out of the tree since."""
    found: dict[str, RegisteredCluster] = {}
    for data in _entries(root, _CLUSTER):
        groups = {Role(role): _at(root, path) for role, path in data["groups"].items()}
        ports = data["ports"]
        if _at(root, data["path"]) is not None:
            found[data["path"]] = RegisteredCluster(
                path=data["path"],
                ports=SlurmPorts(
                    slurmctld=int(ports["slurmctld"]),
                    slurmd=int(ports["slurmd"]),
                    srun=PortRange(int(ports["srun"]["first"]), int(ports["srun"]["last"])),
                ),
                groups={role: group for role, group in groups.items() if group is not None},
            )
    for data in _entries(root, _NODE):
        node = _at(root, data["path"])
        if node is not None and data["cluster"] in found:
            found[data["cluster"]].nodes.setdefault(Role(data["role"]), []).append(node)
    return list(found.values())


def _entries(root: IConstruct, kind: str) -> Iterator[dict[str, Any]]:
    return (entry.data for entry in root.node.metadata if entry.type == kind)


def _at(root: IConstruct, path: str) -> IConstruct | None:
    construct: IConstruct | None = root
    for name in path.split("/"):
        if construct is None:
            return None
        construct = construct.node.try_find_child(name)
    return construct

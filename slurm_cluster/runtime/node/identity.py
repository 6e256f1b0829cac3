"""Who this machine is, as its user data wrote it on its first boot."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from slurm_cluster.model.flows import Role
from slurm_cluster.model.node_files import CONFIG_DIR
from slurm_cluster.runtime.node.errors import NodeError

IDENTITY_FILE = CONFIG_DIR / "node.json"


@dataclass(frozen=True, kw_only=True)
class NodeIdentity:
    """One machine of a cluster.

    Args:
        parameter_path: SSM path of the cluster's parameters.
        role: head or worker.
        node_name: Slurm node name of a worker, None on the head.
    """

    parameter_path: str
    role: Role
    node_name: str | None


def read(path: Path = IDENTITY_FILE) -> NodeIdentity:
    """Read who this machine is.

    Raises:
        NodeError: the file is not there or does not hold it.
    """
    try:
        value = json.loads(path.read_text())
        identity = NodeIdentity(
            parameter_path=value["parameter_path"], role=Role(value["role"]), node_name=value["node_name"]
        )
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise NodeError(f"{path} does not say who this machine is ({problem}): replace the instance") from problem
    if (identity.role is Role.WORKER) != bool(identity.node_name):
        raise NodeError(f"{path}: a worker has a node name and a head has none: replace the instance")
    return identity

"""gres.conf: the GPUs of each node. Pure: same input, same text.

Devices are named, not detected: detection needs a Slurm built with the vendor's library, and for State=CLOUD nodes
slurmctld must know the count before a node exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from slurm_cluster.model.names import static_node_list
from slurm_cluster.model.spec import PartitionSpec
from slurm_cluster.runtime.node.facts import InstanceFacts
from slurm_cluster.runtime.node.slurm_conf import HEADER


def render(partitions: Iterable[PartitionSpec], facts: Mapping[str, InstanceFacts]) -> str:
    """Return the text of gres.conf; without GPU partitions it holds no record."""
    lines = [HEADER, ""]
    for partition in sorted(partitions, key=lambda partition: partition.name):
        gpus = facts[partition.instance_type].gpus
        if gpus is None or partition.static_nodes == 0:
            continue
        devices = "/dev/nvidia0" if gpus.count == 1 else f"/dev/nvidia[0-{gpus.count - 1}]"
        nodes = static_node_list(partition.name, partition.static_nodes)
        lines += [
            f"# {partition.instance_type}: one device file a GPU, given by the driver.",
            f"NodeName={nodes} Name=gpu Type={gpus.type} File={devices}",
        ]
    return "\n".join(lines) + "\n"

"""slurm.conf from what the cluster is and what its instance types offer. Pure: same input, same text.

Every line carries its reason. Keywords and defaults are those of slurm.conf(5) of Slurm 24.11.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from slurm_cluster.model.flows import UNPRIVILEGED_TCP
from slurm_cluster.model.names import static_node_list
from slurm_cluster.model.node_files import SLURMD_SPOOL_DIR
from slurm_cluster.model.spec import ClusterSpec, PartitionSpec
from slurm_cluster.runtime.node.facts import InstanceFacts

HEADER = "# Written by slurm-cluster from the stack's parameters. Changes belong in override.d, or in the stack."


@dataclass(frozen=True, kw_only=True)
class HeadFacts:
    """What only the head knows about itself.

    Args:
        short_hostname: host name up to the first dot; slurmctld refuses to start where SlurmctldHost is another.
        state_directory: StateSaveLocation, on the state volume.
        prolog: program that slurmd runs as root on each node of a job before it starts.
    """

    short_hostname: str
    state_directory: Path
    prolog: Path


def render(
    spec: ClusterSpec, partitions: Iterable[PartitionSpec], facts: Mapping[str, InstanceFacts], head: HeadFacts
) -> str:
    """Return the text of slurm.conf."""
    ordered = sorted(partitions, key=lambda partition: partition.name)
    lines = [HEADER, "", *_settings(spec, head)]
    if any(facts[partition.instance_type].gpus for partition in ordered):
        lines += _explained("GresTypes", "gpu", "GPUs are a resource that jobs ask for with --gpus or --gres.")
    excluded = ",".join(
        static_node_list(partition.name, partition.static_nodes) for partition in ordered if partition.static_nodes
    )
    if excluded:
        lines += _explained("SuspendExcNodes", excluded, "Static workers always run: power saving never touches them.")
    for partition in ordered:
        lines += ["", *_partition(partition, facts[partition.instance_type])]
    return "\n".join(lines) + "\n"


def _explained(key: str, value: object, reason: str) -> list[str]:
    return [f"# {reason}", f"{key}={value}"]


def _settings(spec: ClusterSpec, head: HeadFacts) -> list[str]:
    rows: list[tuple[str, object, str]] = [
        ("ClusterName", spec.cluster_name, "Also names the state directory's owner: slurmctld refuses another's."),
        (
            "SlurmctldHost",
            f"{head.short_hostname}({spec.head_host})",
            "The machine's own short name, reached by the cluster's DNS record, so a new head needs no new workers.",
        ),
        ("SlurmctldPort", spec.ports.slurmctld, "The port that the security groups open for controller RPC."),
        ("SlurmdPort", spec.ports.slurmd, "The port that the security groups open for node RPC and the message tree."),
    ]
    if spec.ports.srun != UNPRIVILEGED_TCP:
        rows.append(
            ("SrunPortRange", spec.ports.srun, "srun and salloc listen here; the security groups open no more.")
        )
    rows += [
        ("SlurmUser", "slurm", "Same uid on all nodes: slurmd takes orders from it alone."),
        ("AuthType", "auth/munge", "One key for all nodes, from the cluster's secret."),
        ("CredType", "cred/munge", "Job credentials are signed by the same key."),
        ("StateSaveLocation", head.state_directory, "On the state volume: jobs outlive the head's root disk."),
        (
            "SlurmdSpoolDir",
            SLURMD_SPOOL_DIR,
            "On the worker's own disk, where a dead file server cannot block it.",
        ),
        ("SlurmdSyslogDebug", "error", "Errors of job steps reach the journal: under systemd they else go nowhere."),
        (
            "SlurmctldParameters",
            "enable_configless,node_reg_mem_percent=90",
            "Only the head has these files and serves them to slurmd; "
            "a host with up to 10% less memory than its type promises stays valid.",
        ),
        ("SelectType", "select/cons_tres", "Cores, memory and GPUs are given out, not whole nodes."),
        ("SelectTypeParameters", "CR_Core_Memory", "Memory too, or RealMemory would limit nothing."),
        ("ProctrackType", "proctrack/cgroup", "Everything a job started is found and ended with it."),
        ("TaskPlugin", "task/cgroup,task/affinity", "Tasks are confined to what they were given and bound to cores."),
        ("JobAcctGatherType", "jobacct_gather/cgroup", "Usage is read where the limits are kept."),
        ("PrologFlags", "Contain", "The prolog ends on every node of a job before anything of the job starts."),
        ("Prolog", head.prolog, "Makes the names of a job's nodes resolve on each of them."),
        ("ReturnToService", 2, "A worker that was away, rebooted or replaced serves again once it registers."),
        ("JobRequeue", 1, "A batch job whose node is lost runs again."),
        ("ResumeRate", 0, "No limit: launches are limited by EC2, not by a second counter."),
        ("SuspendRate", 0, "As ResumeRate."),
    ]
    return [line for key, value, reason in rows for line in _explained(key, value, reason)]


def _partition(partition: PartitionSpec, facts: InstanceFacts) -> list[str]:
    default = "YES" if partition.default else "NO"
    memory_per_cpu = facts.memory_mib // facts.cpus
    nodes = static_node_list(partition.name, partition.static_nodes) if partition.static_nodes else '""'
    lines = [f"# Partition {partition.name}: {partition.instance_type}."]
    if partition.static_nodes:
        gres = f" Gres=gpu:{facts.gpus.type}:{facts.gpus.count}" if facts.gpus else ""
        lines += [
            "# State=CLOUD: only such nodes bring their address along when they register.",
            "# RealMemory is EC2's figure less what firmware and kernel keep, in MiB.",
            f"NodeName={nodes} State=CLOUD Sockets=1 CoresPerSocket={facts.cores}"
            f" ThreadsPerCore={facts.threads_per_core} RealMemory={facts.memory_mib}{gres}",
        ]
    lines += [
        "# DefMemPerCPU is a CPU's share of the node: without it a job that names no memory takes all of it.",
        f"PartitionName={partition.name} Nodes={nodes} Default={default} State=UP"
        f" MaxTime=INFINITE DefMemPerCPU={memory_per_cpu}",
    ]
    return lines

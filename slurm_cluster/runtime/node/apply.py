"""Makes the head's Slurm configuration what the cluster's parameters say. Doing it twice changes nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_cluster.model.names import static_node_names
from slurm_cluster.model.spec import ClusterSpec, PartitionSpec
from slurm_cluster.runtime.node import cgroup_conf, facts, files, gres_conf, overrides, parameters, slurm_conf, units
from slurm_cluster.runtime.node.aws import patiently
from slurm_cluster.runtime.node.commands import CommandError, Runner
from slurm_cluster.runtime.node.errors import NodeError

if TYPE_CHECKING:
    from types_boto3_ec2 import EC2Client
    from types_boto3_ssm import SSMClient

SLURM_DIRECTORY = Path("/etc/slurm")
UNIT = "slurmctld.service"

_NEEDS_RESTART = frozenset(
    {"clustername", "slurmctldhost", "slurmctldport", "statesavelocation", "authtype", "credtype", "selecttype"}
)
"""What a reconfiguration does not take up, in lower case (scontrol(1) reconfigure)."""


@dataclass(frozen=True, kw_only=True)
class Applied:
    """What ``apply`` did.

    Args:
        changed: whether a configuration file changed.
        action: ``none``, ``reconfigure``, ``restart`` or ``start`` of slurmctld.
        files: names of the files that changed.
        nodes: static workers that slurm.conf names.
        overrides: names of the files that a site's override changed.
    """

    changed: bool
    action: str
    files: list[str]
    nodes: list[str]
    overrides: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self)


def rendered(
    spec: ClusterSpec,
    partitions: Iterable[PartitionSpec],
    instance_facts: Mapping[str, facts.InstanceFacts],
    head: slurm_conf.HeadFacts,
) -> tuple[dict[str, str], list[str]]:
    """Return the configuration files by name, overrides included, and the names of those that have an override."""
    ordered = tuple(partitions)
    plain = {
        "slurm.conf": slurm_conf.render(spec, ordered, instance_facts, head),
        "cgroup.conf": cgroup_conf.render(),
        "gres.conf": gres_conf.render(ordered, instance_facts),
    }
    final: dict[str, str] = {}
    overridden = []
    for name, text in plain.items():
        final[name], found = overrides.apply(name, text)
        if found:
            overridden.append(name)
    return final, overridden


def check(run: Runner, texts: Mapping[str, str]) -> None:
    """Have Slurm's own parser read the files before they replace those in use.

    Raises:
        NodeError: it does not accept them.
    """
    with tempfile.TemporaryDirectory() as directory:
        for name, text in texts.items():
            (Path(directory) / name).write_text(text)
        conf = str(Path(directory) / "slurm.conf")
        try:
            run(["scontrol", "show", "hostnames", "x"], env={"SLURM_CONF": conf})
        except CommandError as problem:
            raise NodeError(f"the rendered Slurm configuration is not valid: {problem}") from problem


def apply(
    run: Runner,
    ssm: SSMClient,
    ec2: EC2Client,
    *,
    parameter_path: str,
    spec: ClusterSpec,
    head: slurm_conf.HeadFacts,
    directory: Path = SLURM_DIRECTORY,
) -> Applied:
    """Read the partitions, render, check, write, and have slurmctld take it up.

    Raises:
        NodeError: a parameter, instance type or file is not usable, or slurmctld does not run with it.
    """
    partitions = parameters.partitions(ssm, parameter_path)
    types = {partition.instance_type for partition in partitions}
    known = patiently("ask EC2 for the partitions' instance types", lambda: facts.describe(ec2, types))
    texts, overridden = rendered(spec, partitions, known, head)
    before = {name: files.read(directory / name) for name in texts}
    if any(before[name] != text.encode() for name, text in texts.items()):
        check(run, texts)
    changed = [name for name, text in texts.items() if files.replace(directory / name, text)]
    action = _take_up(run, changed, (before["slurm.conf"] or b"").decode(errors="replace"), texts["slurm.conf"])
    return Applied(
        changed=bool(changed),
        action=action,
        files=changed,
        nodes=[name for item in partitions for name in static_node_names(item.name, item.static_nodes)],
        overrides=overridden,
    )


def _take_up(run: Runner, changed: list[str], before: str, after: str) -> str:
    if not units.is_active(run, UNIT):
        units.restart(run, UNIT)
        return "start"
    if not changed:
        return "none"
    if _restart_settings(before) != _restart_settings(after):
        units.restart(run, UNIT)
        return "restart"
    run(["scontrol", "reconfigure"], timeout=120)
    return "reconfigure"


def _restart_settings(text: str) -> dict[str, str]:
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {key.strip().lower(): value for key, value in pairs if key.strip().lower() in _NEEDS_RESTART}

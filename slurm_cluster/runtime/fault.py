"""A fault of a cluster: what kind, where, by which evidence, and what to change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self

from slurm_cluster.runtime.evidence import without_middle

REASON_LENGTH = 600
_CHANGE_LENGTH = 250


class Code(StrEnum):
    """Kinds of verdict; part of the interface."""

    BOOTSTRAP_FAILED = "bootstrap-failed"
    BOOTSTRAP_WAITS = "bootstrap-waits"
    APPLY_FAILED = "apply-failed"
    INSTANCE_NOT_RUNNING = "instance-not-running"
    NODE_UNREACHABLE = "node-unreachable"
    AGENT_NEVER_ONLINE = "agent-never-online"
    DISK_FULL = "disk-full"
    MOUNT_READ_ONLY = "mount-read-only"
    MOUNT_HUNG = "mount-hung"
    NAME_DOES_NOT_RESOLVE = "name-does-not-resolve"
    MUNGE_DOWN = "munge-down"
    MUNGE_KEY_DIFFERS = "munge-key-differs"
    MESSAGES_REFUSED = "messages-refused"
    CLOCK_DIFFERS = "clock-differs"
    VERSION_MISMATCH = "version-mismatch"
    CONFIG_DIFFERS = "config-differs"
    DAEMON_START_FAILED = "daemon-start-failed"
    SLURMCTLD_DOWN = "slurmctld-down"
    SLURMDBD_DOWN = "slurmdbd-down"
    SLURMD_DOWN = "slurmd-down"
    SLURMD_HUNG = "slurmd-hung"
    NODE_NAME_UNKNOWN = "node-name-unknown"
    DAEMON_PORT_DIFFERS = "daemon-port-differs"
    HOST_FIREWALL = "host-firewall"
    CONTROLLER_RPC_BLOCKED = "controller-rpc-blocked"
    NODE_RPC_BLOCKED = "node-rpc-blocked"
    SRUN_IO_BLOCKED = "srun-io-blocked"
    WORKER_TO_WORKER_BLOCKED = "worker-to-worker-blocked"
    HEAD_TO_WORKER_BLOCKED = "head-to-worker-blocked"
    SRUN_PORTS_EXHAUSTED = "srun-ports-exhausted"
    SRUN_SILENT = "srun-silent"
    JOB_LAUNCH_FAILED = "job-launch-failed"
    WORKER_SILENT = "worker-silent"
    NODE_REFUSED = "node-refused"
    NODE_DOWN = "node-down"
    NODE_DRAINED = "node-drained"
    NODE_NEVER_REGISTERED = "node-never-registered"
    NODE_NOT_FREE = "node-not-free"
    SSM_AGENT_DOWN = "ssm-agent-down"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Why the cluster is not ready.

    Args:
        code: kind.
        node: the machine it is about, ``head`` or a Slurm node name; empty where it is none in particular.
        sentence: what was found and by which evidence.
        change: what to do.
        layer: how far it is from the ground; less is more fundamental. ``findings`` sets it.
    """

    code: Code
    node: str
    sentence: str
    change: str
    layer: int = 0

    @property
    def certain(self) -> bool:
        """Whether waiting longer cannot help: a cause was found and not only an absence."""
        return self.code not in (Code.UNKNOWN, Code.NODE_NEVER_REGISTERED, Code.BOOTSTRAP_WAITS)

    @property
    def reason(self) -> str:
        """One text of at most 600 characters, for CloudFormation."""
        change = _flat(self.change)
        change = change if len(change) <= _CHANGE_LENGTH else f"{change[: _CHANGE_LENGTH - 3]}..."
        return f"{without_middle(_flat(f'{self.code}: {self.sentence}'), REASON_LENGTH - 1 - len(change))} {change}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Read what ``to_dict`` returned.

        Raises:
            KeyError, TypeError, ValueError: it is none, or of a release that has other kinds of verdict.
        """
        texts = {name: value[name] for name in ("node", "sentence", "change")}
        if not (isinstance(value["layer"], int) and all(isinstance(text, str) for text in texts.values())):
            raise TypeError(f"this is no verdict: {value}")
        return cls(code=Code(value["code"]), layer=value["layer"], **texts)


def _flat(text: str) -> str:
    return " ".join(text.split())

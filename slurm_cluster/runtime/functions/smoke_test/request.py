"""What the smoke test is asked for, and what one invocation of its function tells the next."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from slurm_cluster.model.flows import PortRange, SlurmPorts
from slurm_cluster.runtime.evidence import HEAD


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What does not belong to the cluster, so that a change of it is no reason to test again.

    Args:
        on_update: which workers an update tests, ``free``, ``all`` or ``off``.
        budget_seconds: how long a request may take.
        log_group: where reports go.
    """

    on_update: str
    budget_seconds: float
    log_group: str

    @classmethod
    def from_environment(cls) -> Self:
        """Read the function's environment variables."""
        return cls(
            on_update=os.environ["ON_UPDATE"],
            budget_seconds=float(os.environ["BUDGET_SECONDS"]),
            log_group=os.environ["LOG_GROUP"],
        )


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request of CloudFormation.

    Args:
        request_id: its id; the same request may be delivered twice.
        request_type: Create or Update.
        stack_id: ARN of the stack.
        instances: instance ids by name, the head under ``head``, workers under their node names.
        groups: security group ids of ``head`` and ``worker``.
        ports: Slurm's ports.
    """

    request_id: str
    request_type: str
    stack_id: str
    instances: Mapping[str, str]
    groups: Mapping[str, str]
    ports: SlurmPorts

    @classmethod
    def from_event(cls, event: Mapping[str, Any]) -> Self:
        """Read a request.

        Raises:
            KeyError, ValueError: it lacks a property, or there is not one instance for each node name.
        """
        properties = event["ResourceProperties"]
        workers = zip(properties["NodeNames"], properties["WorkerInstanceIds"], strict=True)
        return cls(
            request_id=event["RequestId"],
            request_type=event["RequestType"],
            stack_id=event["StackId"],
            instances={HEAD: properties["HeadInstanceId"], **dict(workers)},
            groups={"head": properties["HeadGroupId"], "worker": properties["WorkerGroupId"]},
            ports=SlurmPorts(srun=PortRange.parse(properties["SrunPorts"])),
        )

    @property
    def workers(self) -> list[str]:
        """Names of the workers."""
        return [name for name in self.instances if name != HEAD]

    @property
    def is_update(self) -> bool:
        """Whether it had been tested before."""
        return self.request_type == "Update"


@dataclass(kw_only=True)
class Progress:
    """How far a request is.

    Args:
        started: when its first invocation began, seconds since the epoch.
        command: id of the command that runs the gate on the head; empty before it is sent.
        sent: when that was.
        sends: how often it was sent.
        head_ready: when the head was first seen ready; None before.
        ready: workers whose bootstrap is done.
        looked: when the cause of a delay was last looked for; None before.
        rolling_back: whether the stack goes back to what it was; None where that is not known.
    """

    started: float
    command: str = ""
    sent: float = 0.0
    sends: int = 0
    head_ready: float | None = None
    ready: list[str] = field(default_factory=list)
    looked: float | None = None
    rolling_back: bool | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self)

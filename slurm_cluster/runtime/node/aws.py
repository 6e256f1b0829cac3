"""Clients of AWS's APIs, and the patience that a booting instance needs with them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from slurm_cluster.runtime.node import troubles
from slurm_cluster.runtime.node.errors import NodeError

if TYPE_CHECKING:
    from types_boto3_ec2 import EC2Client
    from types_boto3_s3 import S3Client
    from types_boto3_secretsmanager import SecretsManagerClient
    from types_boto3_ssm import SSMClient

T = TypeVar("T")

_CONFIG = Config(retries={"mode": "standard", "max_attempts": 10}, connect_timeout=10, read_timeout=30)
_PAUSE = 5
_REFUSALS = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "403"})


class Aws:
    """The clients that node programs use, all of this instance's Region and role."""

    def __init__(self, region: str) -> None:
        self.region = region

    @property
    def ssm(self) -> SSMClient:
        """Systems Manager, for parameters."""
        return boto3.client("ssm", region_name=self.region, config=_CONFIG)

    @property
    def secrets(self) -> SecretsManagerClient:
        """Secrets Manager, for the munge key."""
        return boto3.client("secretsmanager", region_name=self.region, config=_CONFIG)

    @property
    def s3(self) -> S3Client:
        """S3, for the node bundle."""
        return boto3.client("s3", region_name=self.region, config=_CONFIG)

    @property
    def ec2(self) -> EC2Client:
        """EC2, for instances, volumes and instance types."""
        return boto3.client("ec2", region_name=self.region, config=_CONFIG)


def patiently(
    what: str,
    call: Callable[[], T],
    *,
    seconds: float = 300,
    refusal_seconds: float = 60,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """Return ``call()``, tried again while AWS cannot be reached or does not yet let this role in.

    A route, an end point or a role's policy may become effective a little later than the instance.

    Args:
        what: what is being done, for the error.
        call: the request.
        seconds: how long failures are taken for passing ones.
        refusal_seconds: the same for refusals by IAM, which pass sooner or never.
        sleep: waits between attempts.
        clock: seconds of a steady clock.

    Raises:
        NodeError: it still failed at the end; the text holds AWS's own.
    """
    start = clock()
    while True:
        try:
            return call()
        except (BotoCoreError, ClientError) as problem:
            code = problem.response.get("Error", {}).get("Code", "") if isinstance(problem, ClientError) else ""
            limit = refusal_seconds if code in _REFUSALS else seconds
            if clock() - start + _PAUSE > limit:
                raise NodeError(f"{what}: {problem}") from problem
            troubles.tell(f"{what}: {problem}")
        sleep(_PAUSE)

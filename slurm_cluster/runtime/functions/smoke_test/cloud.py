"""What the smoke test's function asks of AWS, one method for each question."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as NotConnected

from slurm_cluster.runtime.evidence import without_middle

if TYPE_CHECKING:
    from types_boto3_cloudformation import CloudFormationClient
    from types_boto3_ec2 import EC2Client
    from types_boto3_lambda import LambdaClient
    from types_boto3_ssm import SSMClient

logger = logging.getLogger()

DOCUMENT = "AWS-RunShellScript"
_PENDING = frozenset({"Pending", "InProgress", "Delayed", "Cancelling"})
_CONFIG = Config(retries={"mode": "standard", "max_attempts": 8}, connect_timeout=5, read_timeout=20)
_BRIEFLY = Config(retries={"mode": "standard", "max_attempts": 2}, connect_timeout=3, read_timeout=4)
"""For what is asked again by who needs it, and may be asked when little time is left."""

_AGENTS_A_PAGE, _MACHINES_A_COMMAND, _INSTANCES_A_FILTER = 50, 50, 200
"""https://docs.aws.amazon.com/systems-manager/latest/APIReference/API_SendCommand.html InstanceIds;
https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstances.html Filters
"""


@dataclass(frozen=True, kw_only=True)
class Instance:
    """What EC2 says of an instance; ``launched`` is when it last started, in seconds since the epoch."""

    state: str
    launched: float


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a command on one machine ended.

    Args:
        succeeded: whether its exit status was 0.
        stdout: what it printed, at most 24,000 characters.
        why: status, exit status and standard error, for a person.
    """

    succeeded: bool
    stdout: str
    why: str


class UnknownCommand(Exception):
    """Systems Manager does not know a command on a machine: right after it was sent, or because it never got there."""


class Cloud:
    """The APIs, in the function's Region and with its role."""

    def __init__(self) -> None:
        self._ec2: EC2Client = boto3.client("ec2", config=_CONFIG)
        self._ssm: SSMClient = boto3.client("ssm", config=_CONFIG)
        self._lambda: LambdaClient = boto3.client("lambda", config=_CONFIG)
        self._cloudformation: CloudFormationClient = boto3.client("cloudformation", config=_BRIEFLY)

    def instances(self, ids: Sequence[str]) -> dict[str, Instance]:
        """Return the instances that EC2 knows, by id; one that is gone or not known yet is left out."""
        found = {}
        for some in _chunks(ids, _INSTANCES_A_FILTER):
            filters: Any = [{"Name": "instance-id", "Values": some}]  # an unknown id is no error in a filter
            for page in self._ec2.get_paginator("describe_instances").paginate(Filters=filters):
                for item in (item for reservation in page["Reservations"] for item in reservation["Instances"]):
                    launched = item.get("LaunchTime")
                    found[item["InstanceId"]] = Instance(
                        state=item["State"]["Name"],
                        launched=launched.timestamp() if isinstance(launched, datetime) else 0.0,
                    )
        return found

    def agents(self, ids: Sequence[str]) -> dict[str, str]:
        """Return the PingStatus of each SSM agent that ever registered, by instance id."""
        found = {}
        for some in _chunks(ids, _AGENTS_A_PAGE):
            filters: Any = [{"Key": "InstanceIds", "Values": some}]
            for page in self._ssm.get_paginator("describe_instance_information").paginate(Filters=filters):
                for item in page["InstanceInformationList"]:
                    found[item["InstanceId"]] = str(item["PingStatus"])
        return found

    def console(self, instance_id: str) -> str:
        """Return the end of an instance's console; empty where EC2 has none yet."""
        try:
            # boto3 decodes it
            return self._ec2.get_console_output(InstanceId=instance_id, Latest=True).get("Output", "")
        except ClientError as error:
            if _code(error) in ("InvalidInstanceID.NotFound", "UnsupportedOperation"):
                return ""
            raise

    def send(self, ids: Sequence[str], script: str, seconds: int) -> dict[str, str]:
        """Start a shell script on machines; return the command id by instance id, none for one that takes no commands.

        Args:
            ids: instances.
            script: run by root's ``/bin/sh``.
            seconds: after which the agent kills it.
        """
        sent: dict[str, str] = {}
        for some in _chunks(ids, _MACHINES_A_COMMAND):
            try:
                answer = self._ssm.send_command(
                    DocumentName=DOCUMENT,
                    InstanceIds=some,
                    Parameters={"commands": [script], "executionTimeout": [str(seconds)]},
                    # delivery; an agent that does not take it within this time is not going to
                    TimeoutSeconds=60,
                )
            except ClientError as error:
                if _code(error) != "InvalidInstanceId":
                    raise
                if len(some) > 1:  # it names none of them
                    sent |= {
                        item: command for one in some for item, command in self.send([one], script, seconds).items()
                    }
                continue
            sent |= dict.fromkeys(some, answer["Command"]["CommandId"])
        return sent

    def outcome(self, command: str, instance_id: str) -> Outcome | None:
        """Return how a command ended on a machine, None while it runs.

        Raises:
            UnknownCommand: it is not known there.
        """
        try:
            answer = self._ssm.get_command_invocation(CommandId=command, InstanceId=instance_id)
        except ClientError as error:
            if _code(error) == "InvocationDoesNotExist":
                raise UnknownCommand(command) from error
            raise
        if answer["Status"] in _PENDING:
            return None
        return Outcome(
            succeeded=answer["Status"] == "Success",
            stdout=answer.get("StandardOutputContent", ""),
            why=f"{answer['StatusDetails']}, exit status {answer['ResponseCode']}: "
            f"{without_middle(answer.get('StandardErrorContent', '').strip(), 1000)}",
        )

    def cancel(self, command: str, instance_id: str) -> None:
        """End a command that nobody waits for any more."""
        try:
            self._ssm.cancel_command(CommandId=command, InstanceIds=[instance_id])
        except (BotoCoreError, ClientError) as error:  # what was found out counts without it
            logger.warning("command %s was not cancelled: %s", command, error)

    def is_rolling_back(self, stack_id: str) -> bool:
        """Return whether the stack goes back to what it was."""
        (stack,) = self._cloudformation.describe_stacks(StackName=stack_id)["Stacks"]
        return "ROLLBACK" in stack["StackStatus"]

    def go_on(self, function: str, event: Mapping[str, Any]) -> None:
        """Invoke the function anew, without waiting for it."""
        self._lambda.invoke(FunctionName=function, InvocationType="Event", Payload=json.dumps(event).encode())


def passes(error: BotoCoreError | ClientError) -> bool:
    """Return whether a request may succeed later: AWS was not reached, failed itself, or asked for patience.

    The clients have tried again for a minute then, which an outage outlasts more often than a cluster's budget.
    """
    if not isinstance(error, ClientError):
        return isinstance(error, HTTPClientError | NotConnected)
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status >= 500 or any(word in _code(error) for word in ("Throttl", "LimitExceeded", "TooManyRequests"))


def is_refused(error: Exception) -> bool:
    """Return whether AWS has answered, and would answer the same again."""
    return isinstance(error, ClientError) and not passes(error)


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _chunks(items: Sequence[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(items), size):
        yield list(items[start : start + size])

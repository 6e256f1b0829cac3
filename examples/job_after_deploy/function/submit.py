"""Submits a job to Slurm and returns its id."""

import os
import shlex
import time
from typing import Any

import boto3

_ENDED = {"Success", "Failed", "TimedOut", "Cancelled"}


def handler(event: dict[str, Any], context: Any) -> dict[str, str]:
    """Submit ``event["command"]`` as a job on ``event["nodes"]`` nodes."""
    options = ["--parsable", f"--nodes={int(event['nodes'])}", f"--wrap={event['command']}"]
    # the job user, in whose home directory on the first of its nodes the job starts and writes
    script = shlex.join(["sudo", "-iu", os.environ["JOB_USER"], "sbatch", *options])
    ssm = boto3.client("ssm")
    instance = os.environ["HEAD_INSTANCE_ID"]
    sent = ssm.send_command(
        InstanceIds=[instance], DocumentName="AWS-RunShellScript", Parameters={"commands": [script]}
    )
    command = sent["Command"]["CommandId"]
    deadline = time.monotonic() + context.get_remaining_time_in_millis() / 1000 - 5
    while time.monotonic() < deadline:
        time.sleep(1)
        try:
            done = ssm.get_command_invocation(CommandId=command, InstanceId=instance)
        except ssm.exceptions.InvocationDoesNotExist:
            continue  # it is known a moment later than it is sent
        if done["Status"] == "Success":
            return {"job": done["StandardOutputContent"].strip()}
        if done["Status"] in _ENDED:
            raise RuntimeError(f"sbatch: {done['Status']}: {done['StandardErrorContent'].strip()}")
    raise TimeoutError(f"{instance} did not answer to Run Command {command}")

"""Custom resource behind PinnedImage: reads a public image parameter once and remembers its answer.

The memory is the physical resource id, ``<image>@<generation>:<parameter>`` of the present answer and of the one before
it. So an update that changes nothing else keeps the image, and a rollback of a changed one gets the former image back,
although the parameter has moved on. CloudFormation waits for an answer on every path, so each of them sends one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from slurm_cluster.runtime.functions import answer

logger = logging.getLogger()
logger.setLevel(logging.INFO)

NO_IMAGE = "none"
"""Physical id of a resource that was never created."""

_PERMISSION_WAIT_SECONDS = 45
"""How long a new role may be unknown to SSM."""


def on_event(event: dict[str, Any], context: Any) -> None:
    """Answer one request of CloudFormation; the entry point of the Lambda function."""
    logger.info("request %s", answer.without_url(event))
    physical_id = event.get("PhysicalResourceId", NO_IMAGE)
    reason = None
    try:
        if event["RequestType"] != "Delete":
            physical_id = pin(event, read_parameter)
    except Exception as error:
        logger.exception("failed")
        reason = _reason(event, error, context)
    image = {} if reason else {"ImageId": physical_id.partition("@")[0]}
    answer.send(event, physical_id, reason=reason, data=image)


def pin(event: dict[str, Any], read: Callable[[str], str]) -> str:
    """Return the physical id that answers a Create or Update request.

    Args:
        event: the request.
        read: returns the present value of a parameter.
    """
    properties = event["ResourceProperties"]
    wanted = f"{properties['Generation']}:{properties['ParameterName']}"
    known = event.get("PhysicalResourceId", NO_IMAGE).split(",") if event["RequestType"] == "Update" else []
    for index, pinned in enumerate(known):
        if pinned.partition("@")[2] == wanted:
            # the other one stays in memory too: a rollback may come for it
            return ",".join([pinned, *known[:index], *known[index + 1 :]])
    return ",".join([f"{read(properties['ParameterName'])}@{wanted}", *known[:1]])


def read_parameter(
    name: str, *, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
) -> str:
    """Return the value of an SSM parameter, patient with a role that is seconds old."""
    # imported here, so that a failure of the import is answered as well
    import boto3
    from botocore.config import Config
    from botocore.exceptions import ClientError

    ssm = boto3.client("ssm", config=Config(connect_timeout=5, read_timeout=5, retries={"total_max_attempts": 4}))
    deadline = clock() + _PERMISSION_WAIT_SECONDS
    while True:
        try:
            return str(ssm.get_parameter(Name=name)["Parameter"]["Value"])
        except ClientError as error:
            if error.response["Error"]["Code"] != "AccessDeniedException" or clock() >= deadline:
                raise
            sleep(3)


def _reason(event: dict[str, Any], error: Exception, context: Any) -> str:
    name = event.get("ResourceProperties", {}).get("ParameterName")
    return (
        f"the image parameter {name} could not be read: {type(error).__name__}: {str(error)[:1000]}. "
        f"See log stream {getattr(context, 'log_stream_name', 'unknown')}"
    )

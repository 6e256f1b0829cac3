"""Custom resource behind PinnedImage: reads a public image parameter once and remembers its answer.

The memory is the physical resource id, ``<image>@<generation>:<parameter>`` of the present answer and of the one before
it. So an update that changes nothing else keeps the image, and a rollback of a changed one gets the former image back,
although the parameter has moved on. CloudFormation waits for an answer on every path, so each of them sends one.
"""

from __future__ import annotations

import http.client
import json
import logging
import time
import urllib.request
from collections.abc import Callable
from typing import Any

logger = logging.getLogger()
logger.setLevel(logging.INFO)

NO_IMAGE = "none"
"""Physical id of a resource that was never created."""

_RESPONSE_LIMIT = 4096
_SEND_ATTEMPTS = 4
_PERMISSION_WAIT_SECONDS = 45
"""How long a new role may be unknown to SSM."""


def on_event(event: dict[str, Any], context: Any) -> None:
    """Answer one request of CloudFormation; the entry point of the Lambda function."""
    # the pre-signed URL in the event lets its holder answer in our place
    logger.info("request %s", json.dumps({name: value for name, value in event.items() if name != "ResponseURL"}))
    physical_id = event.get("PhysicalResourceId", NO_IMAGE)
    try:
        if event["RequestType"] != "Delete":
            physical_id = pin(event, read_parameter)
        answer = {"Status": "SUCCESS", "Data": {"ImageId": physical_id.partition("@")[0]}}
    except Exception as error:
        logger.exception("failed")
        answer = {"Status": "FAILED", "Reason": _reason(event, error, context)}
    send(event, physical_id, answer)


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


def send(event: dict[str, Any], physical_id: str, answer: dict[str, Any]) -> None:
    """Send an answer, several times if need be: without it CloudFormation waits until its own time-out."""
    same = {name: event[name] for name in ("StackId", "RequestId", "LogicalResourceId")}
    body = json.dumps({**answer, **same, "PhysicalResourceId": physical_id}).encode()
    url = event["ResponseURL"]  # made by CloudFormation
    request = urllib.request.Request(url, data=body, method="PUT", headers={"Content-Type": ""})  # noqa: S310
    for attempt in range(1, _SEND_ATTEMPTS + 1):
        try:
            with urllib.request.urlopen(request, timeout=10):  # noqa: S310
                return
        except (OSError, http.client.HTTPException) as error:
            # an HTTPError's text has no URL in it
            logger.warning("answer %d of %d was not taken: %s", attempt, _SEND_ATTEMPTS, error)
            if attempt == _SEND_ATTEMPTS:
                raise
            time.sleep(2**attempt)


def _reason(event: dict[str, Any], error: Exception, context: Any) -> str:
    name = event.get("ResourceProperties", {}).get("ParameterName")
    text = (
        f"the image parameter {name} could not be read: {type(error).__name__}: {error}. "
        f"See log stream {getattr(context, 'log_stream_name', 'unknown')}"
    )
    # JSON writes a character in up to 12 bytes; the rest of the answer needs less than a quarter of the limit
    return text[: _RESPONSE_LIMIT // 16]

"""The full report of a smoke test that failed, in a log group that outlives a stack which is rolled back."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

if TYPE_CHECKING:
    from types_boto3_logs import CloudWatchLogsClient

logger = logging.getLogger()

_EVENT_BYTES = 200_000
"""Below what one log event takes, https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/cloudwatch_limits_cwl.html."""
_EVENTS = 20
_CONFIG = Config(retries={"mode": "standard", "max_attempts": 4}, connect_timeout=5, read_timeout=20)


def write(log_group: str, request_id: str, report: Mapping[str, Any]) -> str:
    """Write a report as JSON, in several events where one does not hold it, and return the name of its log stream.

    Failing to write it does not change the outcome of the test: the function's own log says what went wrong.
    """
    stream = f"report/{request_id}/{time.time_ns()}"
    # one line, which the CDK CLI shows under a failed deployment; JSON escapes what would take more than a byte
    text = json.dumps(report)
    pieces = [text[start : start + _EVENT_BYTES] for start in range(0, len(text), _EVENT_BYTES)][:_EVENTS]
    try:
        logs: CloudWatchLogsClient = boto3.client("logs", config=_CONFIG)
        logs.create_log_stream(logGroupName=log_group, logStreamName=stream)
        for piece in pieces:
            logs.put_log_events(
                logGroupName=log_group,
                logStreamName=stream,
                logEvents=[{"timestamp": int(time.time() * 1000), "message": piece}],
            )
    except (BotoCoreError, ClientError):
        logger.exception("the report could not be written")
    return stream

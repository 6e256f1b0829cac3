"""Answers to CloudFormation: small enough to be taken, sent until taken, the pre-signed URL never logged."""

from __future__ import annotations

import http.client
import json
import logging
import time
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

logger = logging.getLogger()

LIMIT = 4096
"""Bytes of an answer that CloudFormation takes; of a longer one it reports only that it is too long.

https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/crpg-ref-responses.html
"""
_ATTEMPTS = 4
_CUT = " [cut]"


def without_url(event: Mapping[str, Any]) -> str:
    """Return a request as text for a log: who has the pre-signed URL in it can answer in our place."""
    return json.dumps({name: value for name, value in event.items() if name != "ResponseURL"})


def send(
    event: Mapping[str, Any],
    physical_id: str,
    *,
    reason: str | None = None,
    data: Mapping[str, str] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Answer a request of CloudFormation.

    Args:
        event: the request.
        physical_id: physical id of the resource; an empty one would hide the reason.
        reason: why it failed; None is success.
        data: attributes of the resource.
        sleep: waits between attempts.

    Raises:
        OSError, http.client.HTTPException: the answer was not taken in several attempts.
    """
    answer = {name: event[name] for name in ("StackId", "RequestId", "LogicalResourceId")}
    answer |= {"PhysicalResourceId": physical_id, "Status": "SUCCESS" if reason is None else "FAILED"}
    body = fitted({**answer, **({} if reason is None else {"Reason": reason})}, data or {})
    url = event["ResponseURL"]  # made by CloudFormation, signed for a request without a content type
    request = urllib.request.Request(url, data=body, method="PUT", headers={"Content-Type": ""})  # noqa: S310
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with urllib.request.urlopen(request, timeout=10):  # noqa: S310
                return
        except (OSError, http.client.HTTPException) as error:
            # an HTTPError's text has no URL in it
            logger.warning("answer %d of %d was not taken: %s", attempt, _ATTEMPTS, error)
            if attempt == _ATTEMPTS:
                raise
            sleep(2**attempt)


def fitted(answer: Mapping[str, str], data: Mapping[str, str]) -> bytes:
    """Return the answer as JSON below the limit, the longest of its texts cut first where it would not be.

    Args:
        answer: members of the answer; of these only the reason may be cut.
        data: attributes; each may be cut.
    """
    answer, data = dict(answer), dict(data)
    while len(body := _encoded({**answer, "Data": data} if data else answer)) >= LIMIT:
        holder, name = max(
            [*([(answer, "Reason")] if "Reason" in answer else []), *((data, key) for key in data)],
            key=lambda place: len(_encoded(place[0][place[1]])),
        )
        # one character takes at most 6 bytes (a control character), so no pass cuts more than is needed by much
        excess = (len(body) - LIMIT) // 6 + len(_CUT) + 1
        text = holder[name].removesuffix(_CUT)
        holder[name] = text[: max(0, len(text) - excess)] + _CUT
    return body


def _encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")

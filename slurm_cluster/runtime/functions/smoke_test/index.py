"""Entry points of the functions: every request of CloudFormation gets one answer, whatever happens in between."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from slurm_cluster.runtime.functions import answer

if TYPE_CHECKING:
    from slurm_cluster.runtime.functions.smoke_test.watch import Finding, Watch

logger = logging.getLogger()
logger.setLevel(logging.INFO)

FIRST_PHYSICAL_ID = "slurm-smoke-test"
"""Physical id of every smoke test: a failed one has it too, since an empty id would hide the reason."""

REQUEST, PROGRESS = "Request", "Progress"
"""Members of the event with which the function goes on in a new invocation."""

HAND_OVER_SECONDS = 300
"""How long before its end an invocation hands over to the next: a search for a cause must fit in."""

LAST_WORD_SECONDS = 20
"""How long before its end, or that of the budget, an invocation answers, whatever it is doing."""


_PATIENCE_PAUSE = 5.0


class Reply:
    """The one answer to a request, from whichever thread is first.

    Args:
        event: the request.
        until: how long it may take to find out whether the stack is rolled back, seconds since the epoch.
        rolling_back: whether it is, None where that is not known.
    """

    def __init__(self, event: Mapping[str, Any], *, until: float, rolling_back: bool | None = None) -> None:
        self._event = event
        self._until = until
        self._lock = threading.Lock()
        self._sent = False
        self.rolling_back = rolling_back
        self.last_word = "the smoke test did not come to an end in time"
        """Why the test failed, for the case that nothing more can be said before the time is over."""

    def ask(self) -> None:
        """Find out whether the stack is rolled back; an outage leaves that open."""
        if self.rolling_back is None:
            self.rolling_back = _is_rollback(self._event)

    def send(self, *, reason: str | None = None, data: Mapping[str, str] | None = None) -> None:
        """Answer, unless that is done."""
        with self._lock:
            if self._sent:
                return
            physical_id = self._event.get("PhysicalResourceId") or FIRST_PHYSICAL_ID
            answer.send(self._event, physical_id, reason=reason, data=data)
            self._sent = True

    def fail(self, reason: str) -> None:
        """Answer that the test failed; a rollback is not held up by it.

        A rollback that fails leaves the stack between two states, out of which only hands get it; the deployment that
        it undoes has failed already, and says so.
        """
        self.ask()
        while self.rolling_back is None and time.time() + _PATIENCE_PAUSE < self._until:
            time.sleep(_PATIENCE_PAUSE)
            self.ask()
        if self.rolling_back:
            logger.warning("the rollback goes on in spite of: %s", reason)
            self.send(data={"Hosts": "not proven, the rollback was not held up", "Output": reason})
        else:
            self.send(reason=reason)


def on_event(event: dict[str, Any], context: Any) -> None:
    """Answer a request, or hand it over to a new invocation."""
    request = event.get(REQUEST, event)
    logger.info("request %s progress %s", answer.without_url(request), event.get(PROGRESS))
    if request["RequestType"] == "Delete":
        Reply(request, until=0).send()
        return
    now, remaining = time.time(), context.get_remaining_time_in_millis() / 1000
    progress = event.get(PROGRESS) or {"started": now}
    budget = progress["started"] + float(os.environ["BUDGET_SECONDS"]) - now
    left = max(0.0, min(remaining, budget) - LAST_WORD_SECONDS)
    reply = Reply(request, until=now + left, rolling_back=progress.get("rolling_back"))
    last_word = threading.Timer(left, lambda: reply.fail(reply.last_word))
    last_word.daemon = True
    last_word.start()
    try:
        _test(request, progress, reply, context, now + remaining - HAND_OVER_SECONDS)
    except Exception as error:
        logger.exception("failed")
        reply.fail(f"the smoke test could not run: {type(error).__name__}: {str(error)[:1000]}. {_where(context)}")
    finally:
        last_word.cancel()


def on_death(event: dict[str, Any], context: Any) -> None:
    """Answer a request whose invocation ended without an answer: it ran out of memory or time, or never began."""
    payload = event["requestPayload"]
    request = payload.get(REQUEST, payload)
    logger.info("died with request %s", answer.without_url(request))
    until = time.time() + context.get_remaining_time_in_millis() / 1000 - LAST_WORD_SECONDS
    rolling_back = payload.get(PROGRESS, {}).get("rolling_back")
    reply = Reply(request, until=until, rolling_back=rolling_back)
    if request["RequestType"] == "Delete":
        reply.send()
        return
    response = event.get("responsePayload") or {}
    why = response.get("errorMessage") or event.get("requestContext", {}).get("condition", "no reason is known")
    reply.fail(f"the function of the smoke test died: {str(why)[:1000]}. {_where(context)}")


def _test(request: Mapping[str, Any], progress: Mapping[str, Any], reply: Reply, context: Any, until: float) -> None:
    # imported here, so that a failure of the import is answered as well
    from slurm_cluster.runtime.functions.smoke_test.cloud import Cloud
    from slurm_cluster.runtime.functions.smoke_test.request import Progress, Request, Settings
    from slurm_cluster.runtime.functions.smoke_test.watch import Watch

    reply.ask()  # now, as an outage later on must not make a rollback fail
    settings = Settings.from_environment()
    if settings.on_update == "all" and reply.rolling_back:
        settings = replace(settings, on_update="free")  # a rollback waits for nobody's job
    watch = Watch(
        request=Request.from_event(request),
        settings=settings,
        progress=Progress(**{**progress, "rolling_back": reply.rolling_back}),
        cloud=Cloud(),
        clock=time.time,
        sleep=time.sleep,
    )
    finding = watch.run(until)
    if finding is None:
        watch.cloud.go_on(context.invoked_function_arn, {REQUEST: request, PROGRESS: watch.progress.to_dict()})
        return
    _answer(watch, finding, reply, settings.log_group)


def _answer(watch: Watch, finding: Finding, reply: Reply, log_group: str) -> None:
    from slurm_cluster.runtime.functions.smoke_test import report

    if finding.verdict is None:
        reply.send(data=finding.data())
        return
    reply.last_word = f"{finding.verdict.reason} The report in log group {log_group} is not complete."
    # before the answer: a stack that is rolled back takes this function away
    stream = report.write(log_group, watch.request.request_id, watch.report(finding, finding.verdict))
    reply.fail(f"{finding.verdict.reason} Report: log group {log_group}, stream {stream}")


def _is_rollback(request: Mapping[str, Any]) -> bool | None:
    """Return whether the stack goes back to what it was; None where that may be known later."""
    if request["RequestType"] != "Update":
        return False
    try:
        from slurm_cluster.runtime.functions.smoke_test.cloud import Cloud, is_refused
    except Exception:
        logger.exception("nothing can be asked of AWS")
        return False
    try:
        return Cloud().is_rolling_back(request["StackId"])
    except Exception as error:
        logger.exception("the state of the stack could not be read")
        return False if is_refused(error) else None


def _where(context: Any) -> str:
    return f"See log group {os.environ.get('LOG_GROUP')}, stream {getattr(context, 'log_stream_name', 'unknown')}"

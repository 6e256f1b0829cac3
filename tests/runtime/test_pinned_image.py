"""The custom resource behind PinnedImage, as CloudFormation talks to it."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from slurm_cluster.runtime.functions.pinned_image import handler
from tests.runtime.cloudformation_double import CloudFormation, listening

PARAMETER = "/aws/service/debian/release/13/latest/amd64"
CONTEXT = SimpleNamespace(log_stream_name="2026/11/30/[$LATEST]0123")


@pytest.fixture
def cloudformation() -> Iterator[CloudFormation]:
    with listening() as server:
        yield server


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What the public parameters hold at the moment."""
    values = {PARAMETER: "ami-1"}
    monkeypatch.setattr(handler, "read_parameter", lambda name: values[name])
    return values


def _event(cloudformation: CloudFormation, request: str, generation: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "RequestType": request,
        "ResponseURL": cloudformation.url,
        "StackId": "arn:aws:cloudformation:eu-west-1:111122223333:stack/s/guid",
        "RequestId": "request",
        "LogicalResourceId": "Image",
        "ResourceProperties": {"ParameterName": PARAMETER, "Generation": str(generation)},
        **more,
    }


def _answer(cloudformation: CloudFormation, request: str, generation: int = 1, **more: Any) -> dict[str, Any]:
    handler.on_event(_event(cloudformation, request, generation, **more), CONTEXT)
    return cloudformation.answers[-1]


def test_create_answers_with_what_the_parameter_holds(
    cloudformation: CloudFormation, published: dict[str, str]
) -> None:
    answer = _answer(cloudformation, "Create")
    assert answer == {
        "Status": "SUCCESS",
        "Data": {"ImageId": "ami-1"},
        "PhysicalResourceId": f"ami-1@1:{PARAMETER}",
        "StackId": "arn:aws:cloudformation:eu-west-1:111122223333:stack/s/guid",
        "RequestId": "request",
        "LogicalResourceId": "Image",
    }
    # the URL is signed for a request without a content type
    assert cloudformation.content_types == [""]


def test_update_keeps_the_image_although_the_parameter_moved(
    cloudformation: CloudFormation, published: dict[str, str]
) -> None:
    created = _answer(cloudformation, "Create")
    published[PARAMETER] = "ami-2"
    updated = _answer(cloudformation, "Update", PhysicalResourceId=created["PhysicalResourceId"])
    assert updated["Data"] == {"ImageId": "ami-1"}
    assert updated["PhysicalResourceId"] == created["PhysicalResourceId"]


def test_new_generation_reads_again_and_its_rollback_gets_the_former_image_back(
    cloudformation: CloudFormation, published: dict[str, str]
) -> None:
    created = _answer(cloudformation, "Create")
    published[PARAMETER] = "ami-2"
    updated = _answer(cloudformation, "Update", 2, PhysicalResourceId=created["PhysicalResourceId"])
    assert updated["Data"] == {"ImageId": "ami-2"}
    published[PARAMETER] = "ami-3"
    rolled_back = _answer(cloudformation, "Update", 1, PhysicalResourceId=updated["PhysicalResourceId"])
    assert rolled_back["Data"] == {"ImageId": "ami-1"}
    again = _answer(cloudformation, "Update", 2, PhysicalResourceId=rolled_back["PhysicalResourceId"])
    assert again["Data"] == {"ImageId": "ami-2"}


def test_other_parameter_is_another_image(cloudformation: CloudFormation, published: dict[str, str]) -> None:
    created = _answer(cloudformation, "Create")
    published["/other"] = "ami-9"
    properties = {"ParameterName": "/other", "Generation": "1"}
    updated = _answer(
        cloudformation,
        "Update",
        PhysicalResourceId=created["PhysicalResourceId"],
        ResourceProperties=properties,
    )
    assert updated["Data"] == {"ImageId": "ami-9"}


def test_memory_stays_within_the_limit_of_a_physical_id(
    cloudformation: CloudFormation, published: dict[str, str]
) -> None:
    longest = "/aws/service/" + "p" * 300
    physical_id = handler.NO_IMAGE
    for generation in range(1, 6):
        published[longest] = "ami-0123456789abcdef0"
        properties = {"ParameterName": longest, "Generation": str(generation)}
        answer = _answer(cloudformation, "Update", PhysicalResourceId=physical_id, ResourceProperties=properties)
        physical_id = answer["PhysicalResourceId"]
        assert len(physical_id) <= 1024


@pytest.mark.parametrize("physical_id", ["ami-1@1:/p", handler.NO_IMAGE, "anything"])
def test_delete_always_succeeds(
    physical_id: str, cloudformation: CloudFormation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> str:
        raise AssertionError(f"{name} was read")

    monkeypatch.setattr(handler, "read_parameter", refuse)
    answer = _answer(cloudformation, "Delete", PhysicalResourceId=physical_id)
    assert answer["Status"] == "SUCCESS"
    assert answer["PhysicalResourceId"] == physical_id


@pytest.mark.parametrize("error", [ValueError("no"), KeyError("x"), RuntimeError("\U0001f600" * 100_000), OSError()])
def test_every_failure_is_answered_in_less_than_4_kb(
    error: Exception, cloudformation: CloudFormation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> str:
        raise error

    monkeypatch.setattr(handler, "read_parameter", fail)
    answer = _answer(cloudformation, "Create")
    assert answer["Status"] == "FAILED"
    assert answer["Reason"].startswith(f"the image parameter {PARAMETER} could not be read: {type(error).__name__}")
    # an empty id would hide the reason behind "Invalid PhysicalResourceId"
    assert answer["PhysicalResourceId"] == handler.NO_IMAGE
    assert max(cloudformation.sizes) < 4096


def test_failed_update_keeps_the_physical_id(cloudformation: CloudFormation, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> str:
        raise ValueError("gone")

    monkeypatch.setattr(handler, "read_parameter", fail)
    answer = _answer(cloudformation, "Update", 2, PhysicalResourceId=f"ami-1@1:{PARAMETER}")
    assert answer["Status"] == "FAILED"
    assert answer["PhysicalResourceId"] == f"ami-1@1:{PARAMETER}"


def test_malformed_request_is_answered(cloudformation: CloudFormation) -> None:
    answer = _answer(cloudformation, "Create", ResourceProperties={})
    assert answer["Status"] == "FAILED"
    assert "KeyError" in answer["Reason"]


def test_answer_is_sent_again_when_it_was_not_taken(
    cloudformation: CloudFormation, published: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    cloudformation.refusals = 1
    cloudformation.breaks_off = 1
    assert _answer(cloudformation, "Create")["Status"] == "SUCCESS"
    assert len(cloudformation.answers) == 1


def test_response_url_is_never_logged(
    cloudformation: CloudFormation,
    published: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    cloudformation.refusals = 100
    with caplog.at_level(logging.DEBUG), pytest.raises(OSError, match="503"):
        handler.on_event(_event(cloudformation, "Create"), CONTEXT)
    assert "request" in caplog.text
    assert "not taken" in caplog.text
    assert "Signature=secret" not in caplog.text
    assert "127.0.0.1" not in caplog.text


def _stubbed(monkeypatch: pytest.MonkeyPatch) -> Stubber:
    client = boto3.client("ssm", region_name="eu-west-1", aws_access_key_id="a", aws_secret_access_key="b")  # noqa: S106
    monkeypatch.setattr(boto3, "client", lambda *args, **options: client)
    return Stubber(client)


def test_parameter_is_read_once_the_new_role_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    with _stubbed(monkeypatch) as ssm:
        ssm.add_client_error("get_parameter", "AccessDeniedException")
        ssm.add_response("get_parameter", {"Parameter": {"Value": "ami-7"}}, {"Name": PARAMETER})
        assert handler.read_parameter(PARAMETER, clock=lambda: 0, sleep=slept.append) == "ami-7"
    assert slept == [3]


def test_lasting_refusal_and_other_errors_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 60.0])
    with _stubbed(monkeypatch) as ssm:
        ssm.add_client_error("get_parameter", "AccessDeniedException")
        with pytest.raises(Exception, match="AccessDenied"):
            handler.read_parameter(PARAMETER, clock=lambda: next(times), sleep=lambda seconds: None)
    with _stubbed(monkeypatch) as ssm:
        ssm.add_client_error("get_parameter", "ParameterNotFound")
        with pytest.raises(Exception, match="ParameterNotFound"):
            handler.read_parameter(PARAMETER, clock=lambda: 0, sleep=lambda seconds: pytest.fail("slept"))


def test_handler_needs_nothing_but_the_standard_library_to_load() -> None:
    root, module = str(Path(handler.__file__).parents[4]), handler.__name__
    code = f"import sys; sys.path.insert(0, {root!r}); import {module}; assert 'boto3' not in sys.modules"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)

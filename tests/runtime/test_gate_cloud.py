"""What the smoke test's function asks of AWS, and how it takes the answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from botocore.stub import ANY, Stubber
from moto import mock_aws

from slurm_cluster.runtime.functions.smoke_test import report
from slurm_cluster.runtime.functions.smoke_test.cloud import DOCUMENT, Cloud, Instance, UnknownCommand

REGION = "eu-west-1"


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Cloud:
    for name, value in (("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b"), ("AWS_DEFAULT_REGION", REGION)):
        monkeypatch.setenv(name, value)
    return Cloud()


@pytest.fixture
def ssm(cloud: Cloud) -> Iterator[Stubber]:
    with Stubber(cloud._ssm) as stubber:
        yield stubber
        stubber.assert_no_pending_responses()


def test_instances_by_a_filter_that_no_unknown_id_can_break(cloud: Cloud) -> None:
    launched = datetime(2026, 11, 30, tzinfo=UTC)
    running = {"InstanceId": "i-1", "State": {"Name": "running"}, "LaunchTime": launched}
    with Stubber(cloud._ec2) as ec2:
        ec2.add_response(
            "describe_instances",
            {"Reservations": [{"Instances": [running]}]},
            {"Filters": [{"Name": "instance-id", "Values": ["i-1", "i-2"]}]},
        )
        assert cloud.instances(["i-1", "i-2"]) == {"i-1": Instance(state="running", launched=launched.timestamp())}


def test_agents_of_many_machines(cloud: Cloud, ssm: Stubber) -> None:
    ids = [f"i-{number:017x}" for number in range(60)]
    for some in (ids[:50], ids[50:]):
        online = [{"InstanceId": item, "PingStatus": "Online"} for item in some[:1]]
        ssm.add_response(
            "describe_instance_information",
            {"InstanceInformationList": online},
            {"Filters": [{"Key": "InstanceIds", "Values": some}]},
        )
    assert cloud.agents(ids) == {ids[0]: "Online", ids[50]: "Online"}


@pytest.mark.parametrize("code", ["InvalidInstanceID.NotFound", "UnsupportedOperation"])
def test_a_console_that_is_not_there(code: str, cloud: Cloud) -> None:
    with Stubber(cloud._ec2) as ec2:
        ec2.add_client_error("get_console_output", code)
        assert cloud.console("i-1") == ""
        ec2.add_response("get_console_output", {"InstanceId": "i-1"}, {"InstanceId": "i-1", "Latest": True})
        assert cloud.console("i-1") == ""


def test_a_script_is_sent_with_its_time_limit(cloud: Cloud, ssm: Stubber) -> None:
    ssm.add_response(
        "send_command",
        {"Command": {"CommandId": "00000000-0000-0000-0000-000000000001"}},
        {
            "DocumentName": DOCUMENT,
            "InstanceIds": ["i-1", "i-2"],
            "Parameters": {"commands": ["true\n"], "executionTimeout": ["77"]},
            "TimeoutSeconds": 60,
        },
    )
    assert cloud.send(["i-1", "i-2"], "true\n", 77) == dict.fromkeys(
        ["i-1", "i-2"], "00000000-0000-0000-0000-000000000001"
    )


def test_a_machine_that_takes_no_commands_does_not_keep_the_others_from_it(cloud: Cloud, ssm: Stubber) -> None:
    ssm.add_client_error("send_command", "InvalidInstanceId")
    ssm.add_response("send_command", {"Command": {"CommandId": "1" * 36}}, {"InstanceIds": ["i-1"], **_ANY_SCRIPT})
    ssm.add_client_error("send_command", "InvalidInstanceId")
    assert cloud.send(["i-1", "i-2"], "true", 10) == {"i-1": "1" * 36}


_ANY_SCRIPT: dict[str, Any] = {"DocumentName": DOCUMENT, "Parameters": ANY, "TimeoutSeconds": 60}


@pytest.mark.parametrize("status", ["Pending", "InProgress", "Delayed", "Cancelling"])
def test_a_command_that_runs(status: str, cloud: Cloud, ssm: Stubber) -> None:
    ssm.add_response("get_command_invocation", {"Status": status})
    assert cloud.outcome("1" * 36, "i-1") is None


def test_a_command_that_is_not_known_there(cloud: Cloud, ssm: Stubber) -> None:
    ssm.add_client_error("get_command_invocation", "InvocationDoesNotExist")
    with pytest.raises(UnknownCommand):
        cloud.outcome("1" * 36, "i-1")


def test_a_command_that_ended(cloud: Cloud, ssm: Stubber) -> None:
    ended = {
        "Status": "Failed",
        "StatusDetails": "Failed",
        "ResponseCode": 3,
        "StandardOutputContent": "out",
        "StandardErrorContent": "the first words " + "x" * 5000 + "the last words\n",
    }
    ssm.add_response("get_command_invocation", ended)
    outcome = cloud.outcome("1" * 36, "i-1")
    assert outcome is not None
    assert (outcome.succeeded, outcome.stdout) == (False, "out")
    assert outcome.why.startswith("Failed, exit status 3: the first words ")
    assert outcome.why.endswith("the last words")
    assert len(outcome.why) < 1100


def test_other_errors_are_not_taken_for_anything_else(cloud: Cloud, ssm: Stubber) -> None:
    for call, ask in (
        ("send_command", lambda: cloud.send(["i-1"], "true", 1)),
        ("get_command_invocation", lambda: cloud.outcome("1" * 36, "i-1")),
        ("describe_instance_information", lambda: cloud.agents(["i-1"])),
    ):
        ssm.add_client_error(call, "AccessDeniedException")
        with pytest.raises(ClientError, match="AccessDeniedException"):
            ask()


def test_a_command_that_cannot_be_cancelled_is_no_failure(cloud: Cloud, ssm: Stubber) -> None:
    ssm.add_response("cancel_command", {}, {"CommandId": "1" * 36, "InstanceIds": ["i-1"]})
    ssm.add_client_error("cancel_command", "DuplicateInstanceId")
    cloud.cancel("1" * 36, "i-1")
    cloud.cancel("1" * 36, "i-1")


def test_nor_is_one_where_aws_does_not_answer(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: Any) -> None:
        raise EndpointConnectionError(endpoint_url="https://ssm.eu-west-1.amazonaws.com")

    monkeypatch.setattr(cloud._ssm, "cancel_command", fail)
    cloud.cancel("1" * 36, "i-1")


@pytest.mark.parametrize(
    ("status", "expected"),
    [("UPDATE_ROLLBACK_IN_PROGRESS", True), ("UPDATE_IN_PROGRESS", False), ("CREATE_IN_PROGRESS", False)],
)
def test_a_stack_that_goes_back(status: str, expected: bool, cloud: Cloud) -> None:
    stack = {"StackName": "s", "CreationTime": datetime.now(UTC), "StackStatus": status}
    with Stubber(cloud._cloudformation) as cloudformation:
        cloudformation.add_response("describe_stacks", {"Stacks": [stack]}, {"StackName": "arn:stack"})
        assert cloud.is_rolling_back("arn:stack") is expected


def test_the_function_is_invoked_anew_without_waiting(cloud: Cloud) -> None:
    with Stubber(cloud._lambda) as function:
        function.add_response(
            "invoke",
            {"StatusCode": 202},
            {"FunctionName": "arn:function", "InvocationType": "Event", "Payload": b'{"Progress": 1}'},
        )
        cloud.go_on("arn:function", {"Progress": 1})


@mock_aws
def test_the_whole_report_is_in_the_log_group(cloud: Cloud) -> None:
    logs = boto3.client("logs", region_name=REGION)
    logs.create_log_group(logGroupName="log")
    content = {"request_id": "r-1", "evidence": "é\U0001f600" * 30_000}
    stream = report.write("log", "r-1", content)
    events = logs.get_log_events(logGroupName="log", logStreamName=stream, startFromHead=True)["events"]
    assert len(events) > 1
    assert max(len(event["message"].encode()) for event in events) < 262_144
    assert json.loads("".join(event["message"] for event in events)) == content


@mock_aws
def test_a_report_that_cannot_be_written_does_not_change_the_outcome(cloud: Cloud) -> None:
    assert report.write("not there", "r-1", {}).startswith("report/r-1/")

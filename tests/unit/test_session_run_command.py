import boto3
import pytest
from botocore.stub import Stubber
from types_boto3_ssm import SSMClient

from slurm_cluster.rehearsal.run_command import run_command

SEND = {
    "InstanceIds": ["i-1"],
    "DocumentName": "AWS-RunShellScript",
    "Parameters": {"commands": ["set -e", "hostname"], "executionTimeout": ["9"]},
}
COMMAND_ID = "11111111-2222-3333-4444-555555555555"


@pytest.fixture
def ssm() -> SSMClient:
    session = boto3.Session("test", "test", region_name="eu-west-1")
    return session.client("ssm")


def answer(status: str) -> dict[str, object]:
    return {
        "Status": status,
        "ResponseCode": 3,
        "StandardOutputContent": "out",
        "StandardErrorContent": "err",
    }


def test_it_waits_for_the_command_and_returns_what_it_printed(ssm: SSMClient) -> None:
    with Stubber(ssm) as stub:
        stub.add_response("send_command", {"Command": {"CommandId": COMMAND_ID}}, SEND)
        stub.add_client_error("get_command_invocation", "InvocationDoesNotExist")
        stub.add_response("get_command_invocation", answer("InProgress"))
        stub.add_response("get_command_invocation", answer("Failed"))
        result = run_command(ssm, "i-1", "set -e\nhostname", timeout_seconds=9)
        stub.assert_no_pending_responses()
    assert (result.status, result.exit_code, result.stdout, result.stderr) == ("Failed", 3, "out", "err")


def test_a_command_that_does_not_end_is_a_timeout(ssm: SSMClient) -> None:
    with Stubber(ssm) as stub:
        stub.add_response("send_command", {"Command": {"CommandId": COMMAND_ID}})
        stub.add_response("get_command_invocation", answer("InProgress"))
        with pytest.raises(TimeoutError, match=COMMAND_ID):
            run_command(ssm, "i-1", "sleep 99", timeout_seconds=-1)

"""What AWS tells the doctor, by botocore's model of its answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.stub import ANY, Stubber

from slurm_cluster.doctor import account

NAMES = {"10.0.0.5": "head", "10.0.0.11": "n1"}
RECORD = "2 123456789012 eni-1 {} {} 40000 {} {} 3 180 1 2 REJECT OK"
GROUP = "refused-packets"
PACKET = ("10.0.0.11", "10.0.0.5", 33279, 6)
ANY_READING = {"logGroupName": GROUP, "startTime": ANY, "filterPattern": ANY}
ASKED = {"Filter": [{"Name": "resource-id", "Values": ["vpc-1"]}]}


@pytest.fixture
def ec2() -> Iterator[Any]:
    client = boto3.client("ec2", region_name="eu-central-1", aws_access_key_id="x", aws_secret_access_key="x")  # noqa: S106 - none
    with Stubber(client) as stub:
        yield client, stub
        stub.assert_no_pending_responses()


@pytest.fixture
def logs() -> Iterator[Any]:
    client = boto3.client("logs", region_name="eu-central-1", aws_access_key_id="x", aws_secret_access_key="x")  # noqa: S106 - none
    with Stubber(client) as stub:
        yield client, stub
        stub.assert_no_pending_responses()


def instance(address: str, state: str) -> dict[str, Any]:
    return {"InstanceId": f"i-{state}", "PrivateIpAddress": address, "State": {"Name": state}, "VpcId": "vpc-1"}


def test_instances_by_address_without_those_that_are_gone(ec2: Any) -> None:
    client, stub = ec2
    wanted = {"Filters": [{"Name": "private-ip-address", "Values": ["10.0.0.5", "10.0.0.11"]}]}
    found = [instance("10.0.0.11", "stopped"), instance("10.0.0.5", "terminated")]
    stub.add_response("describe_instances", {"Reservations": [{"Instances": found}]}, wanted)
    assert account.instances(client, list(NAMES)) == {
        "10.0.0.11": {"id": "i-stopped", "state": "stopped", "vpc": "vpc-1"}
    }


def flow_log(**more: str) -> dict[str, Any]:
    return {"ResourceId": "vpc-1", "TrafficType": "REJECT", "LogGroupName": GROUP, **more}


def test_refused_packets_between_the_clusters_machines_are_counted(ec2: Any, logs: Any) -> None:
    to_s3 = {"ResourceId": "vpc-1", "TrafficType": "ALL", "LogDestinationType": "s3"}
    flow_logs = [to_s3, flow_log(), flow_log(TrafficType="ACCEPT")]
    ec2[1].add_response("describe_flow_logs", {"FlowLogs": flow_logs}, ASKED)
    lines = [
        RECORD.format("10.0.0.11", "10.0.0.5", 33279, 6),
        RECORD.format("10.0.0.11", "10.0.0.5", 33279, 6),
        RECORD.format("10.0.0.11", "10.0.0.5", 33279, 17),
        RECORD.format("203.0.113.9", "10.0.0.5", 22, 6),
        RECORD.format("10.0.0.11", "10.0.0.5", 33279, 6).replace("REJECT", "ACCEPT"),
    ]
    asked = {"logGroupName": GROUP, "startTime": 5000, "filterPattern": "REJECT"}
    logs[1].add_response("filter_log_events", {"events": [{"message": line} for line in lines]}, asked)
    found = account.refused(ec2[0], logs[0], NAMES, {"vpc-1"}, since=5)
    assert found == [{"opener": "n1", "listener": "head", "port": 33279, "packets": 6}]


def test_a_flow_log_with_a_format_of_its_own_is_read(ec2: Any, logs: Any) -> None:
    own = "${action} ${dstport} ${dstaddr} ${srcaddr} ${protocol}"
    ec2[1].add_response("describe_flow_logs", {"FlowLogs": [flow_log(LogFormat=own)]}, ASKED)
    events = {"events": [{"message": "REJECT 6817 10.0.0.5 10.0.0.11 6"}]}
    logs[1].add_response("filter_log_events", events, {"logGroupName": GROUP, "startTime": ANY, "filterPattern": ANY})
    found = account.refused(ec2[0], logs[0], NAMES, {"vpc-1"}, since=5)
    assert found == [{"opener": "n1", "listener": "head", "port": 6817, "packets": 1}]


def test_a_log_group_that_the_role_may_not_read_does_not_hide_the_one_that_it_may(ec2: Any, logs: Any) -> None:
    others = flow_log(LogGroupName="of-the-auditors")
    for flow_logs in ([others, flow_log()], [others]):
        ec2[1].add_response("describe_flow_logs", {"FlowLogs": flow_logs}, ASKED)
        logs[1].add_client_error("filter_log_events", "AccessDeniedException", "you may not")
        if len(flow_logs) > 1:
            logs[1].add_response("filter_log_events", {"events": [{"message": RECORD.format(*PACKET)}]}, ANY_READING)
            found = account.refused(ec2[0], logs[0], NAMES, {"vpc-1"}, since=5)
            assert found == [{"opener": "n1", "listener": "head", "port": 33279, "packets": 3}]
        else:
            with pytest.raises(ClientError, match="you may not"):
                account.refused(ec2[0], logs[0], NAMES, {"vpc-1"}, since=5)


def test_machines_outside_of_a_vpc_have_no_flow_log(ec2: Any, logs: Any) -> None:
    assert account.refused(ec2[0], logs[0], NAMES, {""}, since=5) is None


def test_no_flow_log_is_no_clean_one(ec2: Any, logs: Any) -> None:
    ec2[1].add_response("describe_flow_logs", {"FlowLogs": []}, ASKED)
    assert account.refused(ec2[0], logs[0], NAMES, {"vpc-1"}, since=5) is None


def test_a_role_that_may_not_read_flow_logs_still_tells_of_instances(
    ec2: Any, logs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [instance("10.0.0.11", "stopped")]
    ec2[1].add_response("describe_instances", {"Reservations": [{"Instances": found}]}, {"Filters": ANY})
    ec2[1].add_client_error("describe_flow_logs", "UnauthorizedOperation", "you may not")
    monkeypatch.setattr(account, "clients", lambda: (ec2[0], logs[0]))
    inquiry = account.Inquiry(NAMES)
    assert inquiry.instances()["n1"]["state"] == "stopped"
    assert "you may not" in str(inquiry.refused_packets())


def test_without_boto3_or_aws_the_doctor_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise ModuleNotFoundError("No module named 'boto3'")

    monkeypatch.setattr(account, "clients", none)
    inquiry = account.Inquiry(NAMES)
    assert inquiry.instances() == {}
    assert inquiry.refused_packets() == "No module named 'boto3'"

"""What the AWS account knows of the machines, where boto3 is installed and the head's role may ask.

Needs ``ec2:DescribeInstances`` for instance states, and ``ec2:DescribeFlowLogs`` with ``logs:FilterLogEvents`` for
refused packets. Everything else works without.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from slurm_cluster.runtime.node.errors import NodeError
from slurm_cluster.runtime.node.instance_metadata import InstanceMetadata

if TYPE_CHECKING:
    from types_boto3_ec2 import EC2Client
    from types_boto3_ec2.type_defs import FlowLogTypeDef
    from types_boto3_logs import CloudWatchLogsClient

ACCOUNT_SECONDS = 15.0
_PERIOD_SECONDS = 1800
_MOST_ADDRESSES = 200
_MOST_EVENTS = 2000
_PROBLEM_LENGTH = 160
_TCP = "6"
_DEFAULT_FORMAT = (
    "${version} ${account-id} ${interface-id} ${srcaddr} ${dstaddr} ${srcport} ${dstport} ${protocol} ${packets} "
    "${bytes} ${start} ${end} ${action} ${log-status}"
)


class Inquiry:
    """Asks AWS from the moment it is made, while others work.

    Args:
        names: machine by private address.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._instances: dict[str, dict[str, str]] = {}
        self._packets: list[dict[str, Any]] | str = "no answer in time"
        self._deadline = time.monotonic() + ACCOUNT_SECONDS
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def instances(self) -> dict[str, dict[str, str]]:
        """Return ``id`` and ``state`` of the machines that are instances, by machine."""
        self._wait()
        return dict(self._instances)

    def refused_packets(self) -> list[dict[str, Any]] | str:
        """Return what ``refused`` does of the last half hour, or why nothing could be read."""
        self._wait()
        return self._packets

    def _wait(self) -> None:
        self._thread.join(max(0, self._deadline - time.monotonic()))

    def _ask(self) -> None:
        try:
            ec2, logs = clients()
            known = instances(ec2, list(self._names))
            self._instances = {self._names[address]: item for address, item in known.items() if address in self._names}
            vpcs = {item["vpc"] for item in known.values()}
            found = refused(ec2, logs, self._names, vpcs, time.time() - _PERIOD_SECONDS)
            self._packets = "the VPC has no flow log in CloudWatch Logs" if found is None else found
        except Exception as problem:
            # whatever it is, the cluster can be examined without
            self._packets = (" ".join(str(problem).split()) or type(problem).__name__)[:_PROBLEM_LENGTH]


def clients() -> tuple[EC2Client, CloudWatchLogsClient]:
    """Return clients of this instance's Region, which give up within seconds.

    Raises:
        ImportError: boto3 is not installed.
        NodeError: this machine is no EC2 instance.
    """
    import boto3
    from botocore.config import Config

    region = InstanceMetadata(sleep=_no_patience).region
    config = Config(region_name=region, retries={"max_attempts": 1}, connect_timeout=3, read_timeout=5)
    return boto3.client("ec2", config=config), boto3.client("logs", config=config)


def _no_patience(_: float) -> None:
    raise NodeError("this machine has no instance metadata")


def instances(ec2: EC2Client, addresses: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return ``id``, ``state`` and ``vpc`` of the instances that have these private addresses, by address."""
    found: dict[str, dict[str, str]] = {}
    for start in range(0, len(addresses), _MOST_ADDRESSES):
        some = list(addresses[start : start + _MOST_ADDRESSES])
        answer = ec2.describe_instances(Filters=[{"Name": "private-ip-address", "Values": some}])
        for instance in (one for group in answer["Reservations"] for one in group["Instances"]):
            if instance["State"]["Name"] != "terminated":
                found[instance["PrivateIpAddress"]] = {
                    "id": instance["InstanceId"],
                    "state": instance["State"]["Name"],
                    "vpc": instance.get("VpcId", ""),
                }
    return found


def refused(
    ec2: EC2Client, logs: CloudWatchLogsClient, names: Mapping[str, str], vpcs: Collection[str], since: float
) -> list[dict[str, Any]] | None:
    """Return refused TCP packets between the cluster's machines by flow logs: opener, listener, port, packets.

    Args:
        ec2: client.
        logs: client.
        names: machine by address.
        vpcs: VPCs of the machines; flow logs of others are not read.
        since: seconds since the epoch.

    Raises:
        Exception: none of their flow logs could be read.

    Returns:
        None where these VPCs have no flow log in CloudWatch Logs that holds refused packets.
    """
    packets: Counter[tuple[str, str, int]] = Counter()
    read, problem = False, None
    for flow_log in _flow_logs(ec2, vpcs):
        fields = re.findall(r"\$\{([^}]+)\}", flow_log.get("LogFormat") or _DEFAULT_FORMAT)
        try:
            messages = _messages(logs, flow_log["LogGroupName"], since)
        except Exception as error:
            problem = error  # one that somebody else reads says nothing against the others
            continue
        read = True
        for message in messages:
            record = dict(zip(fields, message.split(), strict=False))
            ends = names.get(record.get("srcaddr", "")), names.get(record.get("dstaddr", ""))
            if record.get("action") == "REJECT" and record.get("protocol") == _TCP and ends[0] and ends[1]:
                packets[ends[0], ends[1], int(record["dstport"])] += int(record.get("packets", "1"))
    found = [
        {"opener": opener, "listener": listener, "port": port, "packets": count}
        for (opener, listener, port), count in packets.most_common()
    ]
    if problem is not None and not read:
        raise problem
    return found if read else None


def _flow_logs(ec2: EC2Client, vpcs: Collection[str]) -> Iterator[FlowLogTypeDef]:
    """Yield the flow logs of VPCs that hold refused packets in CloudWatch Logs."""
    wanted = sorted(vpc for vpc in vpcs if vpc)
    if not wanted:
        return
    # the parameter's name is what botocore says, not what the type stubs do
    only: Any = {"Filter": [{"Name": "resource-id", "Values": wanted}]}
    pages = ec2.get_paginator("describe_flow_logs").paginate(**only)
    for flow_log in (item for page in pages for item in page["FlowLogs"]):
        if flow_log.get("TrafficType") in ("REJECT", "ALL") and flow_log.get("LogGroupName"):
            yield flow_log


def _messages(logs: CloudWatchLogsClient, group: str, since: float) -> list[str]:
    found: list[str] = []
    pages = logs.get_paginator("filter_log_events").paginate(
        logGroupName=group,
        startTime=int(since * 1000),
        filterPattern="REJECT",
        PaginationConfig={"MaxItems": _MOST_EVENTS},
    )
    for page in pages:
        found += [event["message"] for event in page["events"] if "message" in event]
    return found

"""EC2 security groups as the API reports them: who is in which group, and what each group lets through."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from slurm_cluster.model.flows import PortRange

if TYPE_CHECKING:
    from types_boto3_ec2 import EC2Client
    from types_boto3_ec2.type_defs import InstanceTypeDef, IpPermissionOutputTypeDef

_PROTOCOL_NAMES = {"6": "tcp", "17": "udp", "1": "icmp", "58": "icmpv6"}
_GONE = ("terminated",)


@dataclass(frozen=True, kw_only=True)
class GroupRule:
    """One source or destination of one rule.

    Args:
        protocol: ``tcp``, ``udp``, ``icmp``, ``-1`` for all, or an IP protocol number.
        first: first port, or ICMP type; -1 for all.
        last: last port, or ICMP code; -1 for all.
        peer_group: id of the security group at the other end, or None.
        peer_cidr: IPv4 network at the other end, or None. Exactly one of the two is given.
    """

    protocol: str
    first: int = -1
    last: int = -1
    peer_group: str | None = None
    peer_cidr: str | None = None

    def __post_init__(self) -> None:
        if (self.peer_group is None) == (self.peer_cidr is None):
            raise ValueError(f"rule {self} must have either a peer_group or a peer_cidr")


@dataclass(frozen=True, kw_only=True)
class SecurityGroup:
    """One security group; rules in any order, as any of them suffices."""

    id: str
    ingress: tuple[GroupRule, ...] = ()
    egress: tuple[GroupRule, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GroupSnapshot:
    """All security groups and their members at one moment.

    Args:
        groups: the groups.
        members: private IP addresses and the ids of the groups that their interfaces are in. An id that is not in
            ``groups`` allows nothing, as it vanished between two answers of the API.
    """

    groups: tuple[SecurityGroup, ...] = ()
    members: Mapping[str, frozenset[str]]

    def addresses(self, group_id: str) -> tuple[str, ...]:
        """Return the members of a group in numerical order."""
        found = (ip for ip, groups in self.members.items() if group_id in groups)
        return tuple(sorted(found, key=ipaddress.IPv4Address))


@dataclass(frozen=True, kw_only=True)
class Closure:
    """New TCP connections to be dropped whatever the groups allow, for tests that close one flow.

    Args:
        ports: ports on the listener.
        opener_ips: addresses that the SYN comes from.
        listener_ips: addresses that it goes to.
    """

    ports: PortRange
    opener_ips: frozenset[str]
    listener_ips: frozenset[str]


class Reason(StrEnum):
    """Why packets were dropped."""

    EGRESS = "no egress rule of the sender's groups"
    INGRESS = "no ingress rule of the receiver's groups"
    CLOSED = "closed by a test"
    NO_ROUTE = "no such address in the VPC, and the rehearsal has no internet"


@dataclass(frozen=True, kw_only=True)
class Refused:
    """Packets of one kind that were dropped; a connection attempt sends several.

    Args:
        source: address of the sender.
        destination: address of the receiver.
        protocol: ``tcp``, ``udp``, or an IP protocol number.
        port: destination port; None where the protocol has none.
        reason: what dropped them.
        packets: how many.
    """

    source: str
    destination: str
    protocol: str
    port: int | None
    reason: Reason
    packets: int


def snapshot(ec2: EC2Client) -> GroupSnapshot:
    """Read instances and security groups from the API.

    Raises:
        ValueError: a rule names an address range that is not one.
    """
    members: dict[str, set[str]] = {}
    for page in ec2.get_paginator("describe_instances").paginate():
        for reservation in page["Reservations"]:
            for instance in reservation["Instances"]:
                for ip, groups in _interfaces(instance):
                    members.setdefault(ip, set()).update(groups)
    prefix_lists = _PrefixLists(ec2)
    groups_found = []
    for group_page in ec2.get_paginator("describe_security_groups").paginate():
        for group in group_page["SecurityGroups"]:
            ingress = group.get("IpPermissions", ())
            egress = group.get("IpPermissionsEgress", ())
            groups_found.append(
                SecurityGroup(
                    id=group["GroupId"],
                    ingress=tuple(_rules(ingress, prefix_lists)),
                    egress=tuple(_rules(egress, prefix_lists)),
                )
            )
    return GroupSnapshot(
        groups=tuple(groups_found),
        members={ip: frozenset(ids) for ip, ids in members.items()},
    )


def _interfaces(instance: InstanceTypeDef) -> Iterator[tuple[str, list[str]]]:
    if instance["State"]["Name"] in _GONE:
        return
    for interface in instance.get("NetworkInterfaces", ()):
        if "PrivateIpAddress" in interface:
            yield interface["PrivateIpAddress"], [group["GroupId"] for group in interface.get("Groups", ())]
    if not instance.get("NetworkInterfaces") and instance.get("PrivateIpAddress"):
        yield instance["PrivateIpAddress"], [group["GroupId"] for group in instance.get("SecurityGroups", ())]


def _rules(permissions: Iterable[IpPermissionOutputTypeDef], prefix_lists: _PrefixLists) -> Iterator[GroupRule]:
    # IPv6 ranges say nothing here: the rehearsed VPC has no IPv6.
    for permission in permissions:
        protocol = _PROTOCOL_NAMES.get(permission["IpProtocol"], permission["IpProtocol"])
        first, last = permission.get("FromPort", -1), permission.get("ToPort", -1)
        for pair in permission.get("UserIdGroupPairs", ()):
            yield GroupRule(protocol=protocol, first=first, last=last, peer_group=pair["GroupId"])
        cidrs = [item["CidrIp"] for item in permission.get("IpRanges", ())]
        for item in permission.get("PrefixListIds", ()):
            cidrs += prefix_lists.cidrs(item["PrefixListId"])
        for cidr in cidrs:
            network = ipaddress.IPv4Network(cidr, strict=False)
            yield GroupRule(protocol=protocol, first=first, last=last, peer_cidr=str(network))


class _PrefixLists:
    """The networks of managed prefix lists, each read once and only when a rule names it."""

    def __init__(self, ec2: EC2Client) -> None:
        self._ec2 = ec2
        self._known: dict[str, list[str]] = {}

    def cidrs(self, prefix_list_id: str) -> list[str]:
        if prefix_list_id not in self._known:
            self._known[prefix_list_id] = self._read(prefix_list_id)
        return self._known[prefix_list_id]

    def _read(self, prefix_list_id: str) -> list[str]:
        pages = self._ec2.get_paginator("get_managed_prefix_list_entries")
        try:
            return [
                entry["Cidr"]
                for page in pages.paginate(PrefixListId=prefix_list_id)
                for entry in page["Entries"]
                if ":" not in entry["Cidr"]
            ]
        except ClientError as error:
            if error.response["Error"]["Code"] == "InvalidPrefixListID.NotFound":
                return []
            raise

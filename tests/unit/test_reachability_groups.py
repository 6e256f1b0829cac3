"""What security groups let through: peers, protocols, ports, outbound rules, groups of elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_cluster.model.flows import PortRange, SlurmPorts
from slurm_cluster.reachability import Status, load, prove
from tests.unit.small_clusters import (
    ALL,
    ANYWHERE,
    FLOWS,
    all_are,
    cluster,
    egress,
    everything_open,
    flow_of,
    group,
    ingress,
    instance,
    proof_of,
    resource,
    statuses,
    tcp,
)


def test_without_a_rule_everything_is_closed() -> None:
    proof = proof_of(cluster())
    assert statuses(proof) == all_are(Status.CLOSED)
    assert [rule.reason for item in proof.flows for rule in item.missing] == [
        "no rule of HeadGroup lets in TCP 6817 from WorkerGroup",
        "no rule of WorkerGroup lets in TCP 6818 from HeadGroup",
        "no rule of WorkerGroup lets in TCP 6818 from WorkerGroup",
        "no rule of HeadGroup lets in TCP 1024-65535 from WorkerGroup",
        "no rule of WorkerGroup lets in TCP 1024-65535 from WorkerGroup",
        "no rule of WorkerGroup lets in TCP 1024-65535 from HeadGroup",
        "no rule of WorkerGroup lets in TCP 0-65535 from WorkerGroup",
    ]


@pytest.mark.parametrize(
    ("rule", "status"),
    [
        (tcp(6817, **ANYWHERE), Status.OPEN),
        (tcp("6817", CidrIp="10.0.0.0/16"), Status.OPEN),
        (tcp(6817, CidrIp="10.0.0.0/24"), Status.OPEN),
        (tcp(6817, CidrIp={"Fn::GetAtt": ["Vpc", "CidrBlock"]}), Status.OPEN),
        (tcp(6817, CidrIp={"Fn::GetAtt": ["Subnet", "CidrBlock"]}), Status.OPEN),
        (tcp(6817, SourceSecurityGroupId={"Fn::GetAtt": ["WorkerGroup", "GroupId"]}), Status.OPEN),
        (tcp(6817, SourceSecurityGroupName="workers"), Status.OPEN),
        (tcp(6817, SourcePrefixListId={"Ref": "Known"}), Status.OPEN),
        ({**ALL, **ANYWHERE}, Status.OPEN),
        ({**tcp(6817, **ANYWHERE), "IpProtocol": "6"}, Status.OPEN),
        ({**tcp(6817, **ANYWHERE), "IpProtocol": 6}, Status.OPEN),
        ({**tcp(6817, **ANYWHERE), "IpProtocol": "all"}, Status.OPEN),
        ({**tcp(6817, **ANYWHERE), "IpProtocol": "udp"}, Status.CLOSED),
        ({**tcp(-1, **ANYWHERE), "IpProtocol": "icmp"}, Status.CLOSED),
        (tcp(6816, **ANYWHERE), Status.CLOSED),
        (tcp(6818, 65535, **ANYWHERE), Status.CLOSED),
        (tcp(6817, CidrIp="10.1.0.0/16"), Status.CLOSED),
        (tcp(6817, CidrIpv6="::/0"), Status.CLOSED),
        (tcp(6817, SourceSecurityGroupId={"Ref": "HeadGroup"}), Status.CLOSED),
        (tcp(6817, SourceSecurityGroupId="sg-0123456789abcdef0"), Status.CLOSED),
        (tcp(6817), Status.CLOSED),
        (tcp(6817, SourcePrefixListId="pl-0123"), Status.UNKNOWN),
        (tcp(6817, CidrIp="10.0.0.0/25"), Status.UNKNOWN),
        (tcp(6817, CidrIp={"Ref": "Range"}), Status.UNKNOWN),
        (tcp({"Ref": "Port"}, **ANYWHERE), Status.UNKNOWN),
        ({**tcp(6817, **ANYWHERE), "IpProtocol": {"Ref": "Protocol"}}, Status.UNKNOWN),
        ({"IpProtocol": "tcp", **ANYWHERE}, Status.UNKNOWN),
    ],
)
def test_one_inbound_rule_lets_workers_in_or_not(rule: dict[str, Any], status: Status) -> None:
    template = cluster(
        {
            "HeadGroup": group(rule),
            "WorkerGroup": group(GroupName="workers"),
            "Known": resource("PrefixList", Entries=[{"Cidr": "10.9.0.0/16"}, {"Cidr": "10.0.0.0/16"}]),
        },
        parameters={name: {"Type": "String"} for name in ("Range", "Port", "Protocol")},
    )
    found = flow_of(proof_of(template), "controller-rpc")
    assert found.status is status
    assert [item.id for item in found.by] == (["HeadGroup/SecurityGroupIngress/0"] if status is Status.OPEN else [])
    assert bool(found.needs) is (status is Status.UNKNOWN)


@pytest.mark.parametrize(
    ("rule", "need"),
    [
        (tcp(6817, SourcePrefixListId="pl-0123"), "the entries of prefix list pl-0123"),
        (tcp(6817, CidrIp="10.0.0.0/25"), "whether the private address of Worker1 is in 10.0.0.0/25"),
        (tcp(6817, CidrIp={"Ref": "X"}), "whether the private address of Worker1 is in ${X}"),
        (tcp({"Ref": "X"}, **ANYWHERE), "the ports ${X} of HeadGroup/SecurityGroupIngress/0"),
        (
            {**tcp(6817, **ANYWHERE), "IpProtocol": {"Ref": "X"}},
            "the protocol ${X} of HeadGroup/SecurityGroupIngress/0",
        ),
    ],
)
def test_what_is_unknown_says_what_it_would_have_to_know(rule: dict[str, Any], need: str) -> None:
    template = cluster({"HeadGroup": group(rule)}, parameters={"X": {"Type": "String"}})
    assert flow_of(proof_of(template), "controller-rpc").needs == (need,)


def test_ranges_of_several_rules_cover_a_flow_together() -> None:
    parts = {
        "Low": ingress("HeadGroup", "WorkerGroup", **tcp(1024, 20000)),
        "High": ingress("HeadGroup", "WorkerGroup", **tcp(30000, 65535)),
    }
    gap = flow_of(proof_of(cluster(parts)), "srun-io")
    assert gap.status is Status.CLOSED
    assert gap.missing[0].reason == "no rule of HeadGroup lets in TCP 20001-29999 from WorkerGroup"
    middle = {"Middle": ingress("HeadGroup", "WorkerGroup", **tcp(20001, 29999))}
    whole = flow_of(proof_of(cluster({**parts, **middle})), "srun-io")
    assert whole.status is Status.OPEN
    assert {rule.id for rule in whole.by} == {"Low", "Middle", "High"}


def test_the_narrowest_rule_is_the_one_that_opens() -> None:
    rules = {
        "All": resource("SecurityGroupIngress", GroupId={"Ref": "HeadGroup"}, **ALL, **ANYWHERE),
        "Range": ingress("HeadGroup", "WorkerGroup", **tcp(1024, 65535)),
        "Port": ingress("HeadGroup", "WorkerGroup", **tcp(6817)),
    }
    proof = proof_of(cluster(rules))
    assert [rule.id for rule in flow_of(proof, "controller-rpc").by] == ["Port"]
    assert [rule.id for rule in flow_of(proof, "srun-io").by] == ["Range"]
    assert {use.rule.id: use.wider for use in proof.wider} == {"All": "no flow needs it, other rules suffice"}


@pytest.mark.parametrize(
    ("rules", "is_open"),
    [
        ({}, FLOWS),
        ({"WorkerGroup": group(SecurityGroupEgress=[])}, FLOWS),
        ({"WorkerGroup": group(SecurityGroupEgress=[{**ALL, **ANYWHERE}])}, FLOWS),
        (
            {
                "WorkerGroup": group(
                    SecurityGroupEgress=[
                        {"CidrIp": "255.255.255.255/32", "IpProtocol": "icmp", "FromPort": 252, "ToPort": 86}
                    ]
                )
            },
            ("node-rpc", "controller-to-srun-in-job"),
        ),
        (
            {"Out": egress("WorkerGroup", "HeadGroup")},
            ("controller-rpc", "node-rpc", "srun-io", "controller-to-srun-in-job"),
        ),
        (
            {"Out": resource("SecurityGroupEgress", GroupId={"Ref": "WorkerGroup"}, **tcp(443), **ANYWHERE)},
            ("node-rpc", "controller-to-srun-in-job"),
        ),
    ],
    ids=["default", "empty list", "explicit", "none, as the CDK writes it", "to the head only", "HTTPS only"],
)
def test_an_outbound_rule_takes_the_place_of_the_default_one(rules: dict[str, Any], is_open: tuple[str, ...]) -> None:
    proof = proof_of(cluster({**everything_open(), **rules}))
    assert [name for name, status in statuses(proof).items() if status is Status.OPEN] == list(is_open)
    assert {rule.direction for item in proof.closed for rule in item.missing} <= {"egress"}


def test_a_group_of_elsewhere_is_unknown_unless_a_rule_of_the_template_says_yes() -> None:
    """The rules that the template adds hold in any case; what else the group has, nobody knows."""
    outside = "sg-0123456789abcdef0"
    found = cluster(
        {
            "Head": resource("Instance", SubnetId={"Ref": "Subnet"}, SecurityGroupIds=[outside]),
            "HeadGroup": None,
            "ToWorkers": resource("SecurityGroupIngress", GroupId={"Ref": "WorkerGroup"}, **tcp(6818), **ANYWHERE),
            "ToHead": ingress(outside, "WorkerGroup", **tcp(6817)),
            "BetweenWorkers": ingress("WorkerGroup", "WorkerGroup"),
        }
    )
    proof = proof_of(found)
    assert [item.flow.id for item in proof.flows if item.status is Status.OPEN] == [
        "controller-rpc",
        "message-tree",
        "srun-io-in-job",
        "mpi",
    ]
    assert flow_of(proof, "srun-io").needs == (f"the inbound rules of security group {outside}",)
    assert flow_of(proof, "node-rpc").needs == (f"the outbound rules of security group {outside}",)
    # the worker's group is known, and lets in no more than that
    assert [item.flow.id for item in proof.closed] == ["controller-to-srun-in-job"]


@pytest.mark.parametrize(
    ("ranges", "status"),
    [
        (["10.0.0.0/16", "10.7.0.0/16"], Status.OPEN),
        (["10.0.0.0/8"], Status.OPEN),
        (["10.7.0.0/16"], Status.UNKNOWN),
        (["10.0.0.0/16"], Status.UNKNOWN),
        (["10.8.0.0/16"], Status.CLOSED),
    ],
)
def test_a_machine_of_an_unknown_subnet_is_somewhere_in_its_vpc(ranges: list[str], status: Status) -> None:
    template = cluster(
        {
            "Second": resource("VPCCidrBlock", VpcId={"Ref": "Vpc"}, CidrBlock="10.7.0.0/16"),
            "Fleet": resource("LaunchTemplate", LaunchTemplateData={"SecurityGroupIds": [{"Ref": "WorkerGroup"}]}),
            "Ranges": resource("PrefixList", Entries=[{"Cidr": item} for item in ranges]),
            "HeadGroup": group(tcp(6817, SourcePrefixListId={"Ref": "Ranges"})),
        }
    )
    assert flow_of(proof_of(template, workers="Fleet"), "controller-rpc").status is status


def test_an_outbound_rule_that_may_be_this_groups_may_have_taken_the_default_ones_place() -> None:
    other = {
        "Parameters": {"Group": {"Type": "String"}},
        "Resources": {"Add": resource("SecurityGroupEgress", GroupId={"Ref": "Group"}, **tcp(443), **ANYWHERE)},
    }
    templates = load({"a": cluster(everything_open()), "b": other})
    proof = prove(templates, head=["Head"], workers=["Worker1", "Worker2"])
    assert statuses(proof) == all_are(Status.UNKNOWN)
    assert flow_of(proof, "node-rpc").needs == ("the outbound rules of security group HeadGroup",)


def test_a_rule_of_a_group_that_may_be_this_one_may_open_it() -> None:
    """The template of another stack adds a rule to a group that it gets as a parameter."""
    other = {
        "Parameters": {"Group": {"Type": "String"}},
        "Resources": {
            "Add": resource("SecurityGroupIngress", GroupId={"Ref": "Group"}, **tcp(6817), **ANYWHERE),
        },
    }
    proof = prove(load({"a": cluster(), "b": other}), head=["Head"], workers=["Worker1", "Worker2"])
    assert flow_of(proof, "controller-rpc").needs == ("which security group ${Group} is, to which Add adds a rule",)


@pytest.mark.parametrize("restricted", [False, True])
def test_machines_without_a_group_are_in_the_default_group_of_their_vpc(restricted: bool) -> None:
    default = {"Fn::GetAtt": ["Vpc", "DefaultSecurityGroup"]}
    extra = {"Restriction": {"Type": "Custom::VpcRestrictDefaultSG", "Properties": {"DefaultSecurityGroupId": default}}}
    names = ("Head", "Worker1", "Worker2")
    machines = {name: resource("Instance", SubnetId={"Ref": "Subnet"}) for name in names}
    proof = proof_of(cluster({**machines, **(extra if restricted else {})}))
    assert statuses(proof) == all_are(Status.CLOSED if restricted else Status.OPEN)


def test_a_machine_of_several_groups_has_the_rules_of_all() -> None:
    template = cluster(
        {
            "Extra": group(),
            "Worker1": instance("WorkerGroup", "Extra"),
            "Worker2": instance("Extra", "WorkerGroup"),
            "ToHead": ingress("HeadGroup", "Extra"),
            "ToWorkers": ingress("Extra", "HeadGroup"),
            "BetweenWorkers": ingress("Extra", "WorkerGroup"),
        }
    )
    assert statuses(proof_of(template)) == all_are(Status.OPEN)


def test_every_worker_counts() -> None:
    template = cluster({**everything_open(), "Other": group(), "Worker2": instance("Other")})
    proof = proof_of(template)
    assert statuses(proof) == all_are(Status.CLOSED)
    reasons = [rule.reason for rule in flow_of(proof, "message-tree").missing]
    assert reasons == [
        "no rule of Other lets in TCP 6818 from WorkerGroup",
        "no rule of WorkerGroup lets in TCP 6818 from Other",
    ]


def test_a_lone_worker_is_judged_as_if_there_were_another() -> None:
    template = cluster({"Worker2": None, "ToHead": ingress("HeadGroup", "WorkerGroup")})
    proof = proof_of(template, workers="Worker1")
    assert flow_of(proof, "message-tree").status is Status.CLOSED
    template["Resources"]["Self"] = ingress("WorkerGroup", "WorkerGroup")
    assert flow_of(proof_of(template, workers="Worker1"), "message-tree").status is Status.OPEN


def test_a_machine_reaches_itself_without_any_rule() -> None:
    proof = proof_of(cluster(), head="Head", workers="Head")
    assert flow_of(proof, "controller-rpc").status is Status.OPEN


def test_a_narrow_srun_range_is_what_has_to_be_open() -> None:
    ports = SlurmPorts(srun=PortRange(61000, 63999))
    template = cluster({"ToHead": ingress("HeadGroup", "WorkerGroup", **tcp(60000, 64000))})
    proof = proof_of(template, ports=ports)
    assert flow_of(proof, "srun-io").status is Status.OPEN
    assert {use.rule.id: use.wider for use in proof.wider} == {"ToHead": "ports 60000-60999, 64000"}


def test_what_of_a_rule_no_flow_needs() -> None:
    template = cluster(
        {
            "Database": instance("WorkerGroup"),
            "ToHead": ingress("HeadGroup", "WorkerGroup", **tcp(6800, 6900)),
            "ToWorkers": resource("SecurityGroupIngress", GroupId={"Ref": "WorkerGroup"}, **ALL, **ANYWHERE),
            "Ping": ingress("HeadGroup", "WorkerGroup", IpProtocol="icmp", FromPort=-1, ToPort=-1),
            "One": resource(
                "SecurityGroupIngress", GroupId={"Ref": "HeadGroup"}, **tcp(1024, 65535), CidrIp="10.0.0.9/32"
            ),
            "Worker1": instance("WorkerGroup", PrivateIpAddress="10.0.0.9"),
            "Worker2": None,
        }
    )
    assert {use.rule.id: use.wider for use in proof_of(template, workers="Worker1").rules} == {
        "ToHead": "WorkerGroup also holds Database",
        "ToWorkers": "0.0.0.0/0: any address; protocols other than TCP",
        "Ping": "no flow needs it",
        # it serves the one worker there is
        "One": "",
    }


@pytest.mark.parametrize(
    ("one", "other", "wider"),
    [
        (tcp(6817), tcp(1024, 65535), "ports 0-1023"),
        (tcp(6817), tcp(22), "ports 0-1023"),
    ],
)
def test_a_rule_that_is_needed_under_one_condition_is_needed(
    one: dict[str, Any], other: dict[str, Any], wider: str
) -> None:
    """Two rules make the wide one needless, but only where both of them are there."""
    template = cluster(
        {
            "Wide": ingress("HeadGroup", "WorkerGroup", **tcp(0, 65535)),
            "One": {**ingress("HeadGroup", "WorkerGroup", **one), "Condition": "Narrow"},
            "Other": {**ingress("HeadGroup", "WorkerGroup", **other), "Condition": "Narrow"},
        },
        parameters={"Narrow": {"Type": "String"}},
    )
    template["Conditions"] = {"Narrow": {"Fn::Equals": [{"Ref": "Narrow"}, "yes"]}}
    proof = proof_of(template)
    assert flow_of(proof, "srun-io").status is Status.OPEN
    (use,) = (use for use in proof.rules if use.rule.id == "Wide")
    assert ([flow.id for flow in use.flows], use.wider) == (["controller-rpc", "srun-io"], wider)

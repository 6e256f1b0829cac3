"""What network ACLs let through: order, both directions, answers, subnets of elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_cluster.reachability import Status, load, prove
from tests.unit.small_clusters import (
    FLOWS,
    Template,
    all_are,
    cluster,
    everything_open,
    flow_of,
    instance,
    proof_of,
    resource,
    statuses,
)

TO_HEAD = ("controller-rpc", "srun-io")
FROM_HEAD = ("node-rpc", "controller-to-srun-in-job")


def guarded(*entries: Template, **more: Any) -> Template:
    """Return a cluster whose workers are in a subnet of their own, behind a network ACL."""
    return cluster(
        {
            **everything_open(),
            "WorkerSubnet": resource("Subnet", VpcId={"Ref": "Vpc"}, CidrBlock="10.0.1.0/24"),
            "Worker1": instance("WorkerGroup", subnet="WorkerSubnet"),
            "Worker2": instance("WorkerGroup", subnet="WorkerSubnet"),
            "Acl": resource("NetworkAcl", VpcId={"Ref": "Vpc"}),
            "Here": resource(
                "SubnetNetworkAclAssociation", SubnetId={"Ref": "WorkerSubnet"}, NetworkAclId={"Ref": "Acl"}
            ),
            **{f"Entry{number}": item for number, item in enumerate(entries)},
            **more,
        }
    )


def entry(
    number: Any, action: str, *, out: bool = False, ports: tuple[Any, Any] | None = None, **more: Any
) -> Template:
    properties = {"NetworkAclId": {"Ref": "Acl"}, "Protocol": 6 if ports else -1, "CidrBlock": "0.0.0.0/0", **more}
    if ports:
        properties["PortRange"] = {"From": ports[0], "To": ports[1]}
    return resource("NetworkAclEntry", RuleNumber=number, RuleAction=action, Egress=out, **properties)


ALL_OUT = entry(100, "allow", out=True)
ALL_IN = entry(100, "allow")


@pytest.mark.parametrize(
    ("entries", "closed"),
    [
        ([ALL_IN, ALL_OUT], ()),
        ([], (*TO_HEAD, *FROM_HEAD)),
        ([ALL_IN], (*TO_HEAD, *FROM_HEAD)),
        ([ALL_OUT], (*TO_HEAD, *FROM_HEAD)),
        ([entry(100, "allow", ports=(1024, 65535)), ALL_OUT], ()),
        ([entry(100, "allow", ports=(6818, 6818)), ALL_OUT], (*TO_HEAD, "controller-to-srun-in-job")),
        ([entry(100, "allow", ports=(1024, 32767)), ALL_OUT], (*TO_HEAD, "controller-to-srun-in-job")),
        ([entry(100, "allow", ports=(32768, 60999)), ALL_OUT], FROM_HEAD),
        ([ALL_IN, entry(100, "allow", out=True, ports=(32768, 65535))], TO_HEAD),
        ([ALL_IN, ALL_OUT, entry(99, "deny", ports=(6818, 6818))], FROM_HEAD),
        ([entry(100, "allow", ports=(6818, 6818), Protocol=-1), ALL_OUT], ()),
        ([ALL_IN, ALL_OUT, entry(101, "deny", ports=(6818, 6818))], ()),
        ([ALL_IN, ALL_OUT, entry(99, "deny", CidrBlock="10.0.0.0/24")], (*TO_HEAD, *FROM_HEAD)),
        ([ALL_IN, ALL_OUT, entry(99, "deny", CidrBlock="10.0.1.0/24")], ()),
        ([ALL_IN, ALL_OUT, entry(99, "deny", Protocol=17, PortRange={"From": 0, "To": 65535})], ()),
        ([entry(100, "allow", CidrBlock="10.0.0.0/16"), ALL_OUT], ()),
        ([entry(100, "allow", CidrBlock="10.0.1.0/24"), ALL_OUT], (*TO_HEAD, *FROM_HEAD)),
    ],
)
def test_the_first_entry_that_fits_decides_there_and_back(entries: list[Template], closed: tuple[str, ...]) -> None:
    """Between workers no ACL is asked: they are in one subnet."""
    proof = proof_of(guarded(*entries))
    assert {item.flow.id for item in proof.closed} == set(closed)
    assert not proof.unknown


def test_what_to_add_goes_before_the_entry_that_denies() -> None:
    template = guarded(ALL_IN, ALL_OUT, entry(50, "deny", ports=(6817, 7000)))
    (missing,) = flow_of(proof_of(template), "node-rpc").missing
    assert missing.reason == "network ACL Acl denies TCP 6818 into the subnet of Worker1 from Head"
    assert missing.resource() == {
        "Type": "AWS::EC2::NetworkAclEntry",
        "Properties": {
            "NetworkAclId": {"Ref": "Acl"},
            "RuleNumber": 49,
            "Protocol": 6,
            "RuleAction": "allow",
            "Egress": False,
            "CidrBlock": "10.0.0.0/24",
            "PortRange": {"From": 6818, "To": 6818},
        },
    }


def test_all_that_is_missing_fits_into_one_network_acl() -> None:
    template = guarded()
    missing = {rule.logical_id: rule.resource() for item in proof_of(template).closed for rule in item.missing}
    numbers = [(item["Properties"]["RuleNumber"], item["Properties"]["Egress"]) for item in missing.values()]
    assert len(set(numbers)) == len(numbers) > 4
    template["Resources"] |= missing
    assert statuses(proof_of(template)) == all_are(Status.OPEN)


def test_no_number_is_free_before_the_first() -> None:
    (missing,) = flow_of(proof_of(guarded(ALL_IN, ALL_OUT, entry(1, "deny", ports=(6818, 6818)))), "node-rpc").missing
    assert missing.number is None
    assert missing.reason.startswith("network ACL Acl denies TCP 6818")


@pytest.mark.parametrize(
    ("more", "need"),
    [
        ({"CidrBlock": {"Ref": "X"}}, "whether the private address of Head is in ${X}"),
        ({"ports": ({"Ref": "X"}, {"Ref": "X"})}, "the ports ${X} of network ACL entry 90"),
        ({"Protocol": {"Ref": "X"}}, "the protocol ${X} of network ACL entry 90"),
        ({"number": {"Ref": "X"}}, "the entries of network ACL Acl"),
    ],
)
def test_an_entry_that_may_deny_is_unknown(more: dict[str, Any], need: str) -> None:
    number, options = more.pop("number", 90), more
    template = guarded(ALL_IN, ALL_OUT, entry(number, "deny", **options))
    template["Parameters"] = {"X": {"Type": "String"}}
    found = flow_of(proof_of(template), "node-rpc")
    assert (found.status, found.needs) == (Status.UNKNOWN, (need,))


def test_an_acl_of_elsewhere_is_unknown() -> None:
    template = guarded(
        Here=resource("SubnetNetworkAclAssociation", SubnetId={"Ref": "WorkerSubnet"}, NetworkAclId="acl-1")
    )
    proof = proof_of(template)
    assert {item.flow.id for item in proof.unknown} == {*TO_HEAD, *FROM_HEAD}
    assert flow_of(proof, "node-rpc").needs == ("the entries of network ACL acl-1",)


def test_the_acl_of_a_subnet_of_elsewhere_is_taken_for_the_default_one_and_said_so() -> None:
    template = cluster(
        {**everything_open(), "Head": instance("HeadGroup", subnet="Where")}, parameters={"Where": {"Type": "String"}}
    )
    proof = proof_of(template)
    assert statuses(proof) == all_are(Status.OPEN)
    assumed = "the network ACL of subnet ${Where} admits everything, as a VPC's default one does"
    assert {item.flow.id: item.assumed for item in proof.flows} == {
        name: (assumed,) if name in (*TO_HEAD, *FROM_HEAD) else () for name in FLOWS
    }


def test_a_default_network_acl_may_be_changed() -> None:
    deny = resource(
        "NetworkAclEntry",
        NetworkAclId={"Fn::GetAtt": ["Vpc", "DefaultNetworkAcl"]},
        RuleNumber=10,
        RuleAction="deny",
        Protocol=-1,
        CidrBlock="10.0.0.0/16",
    )
    template = guarded(ALL_IN, ALL_OUT, Deny=deny)
    assert {item.flow.id for item in proof_of(template).closed} == {*TO_HEAD, *FROM_HEAD}


def test_an_entry_may_take_the_place_of_the_default_one() -> None:
    mild = resource(
        "NetworkAclEntry",
        NetworkAclId={"Fn::GetAtt": ["Vpc", "DefaultNetworkAcl"]},
        RuleNumber=100,
        RuleAction="deny",
        Protocol=-1,
        CidrBlock="192.168.0.0/16",
    )
    template = guarded(ALL_IN, ALL_OUT, Mild=mild)
    assert {item.flow.id for item in proof_of(template).closed} == {*TO_HEAD, *FROM_HEAD}


def test_machines_that_may_be_in_several_subnets_are_in_each() -> None:
    """Workers of a group that spans two zones meet each other across the ACL of one of them."""
    template = guarded(
        ALL_OUT,
        entry(100, "allow", CidrBlock="10.0.0.0/24"),
        Worker1=None,
        Worker2=None,
        Template=resource("LaunchTemplate", LaunchTemplateData={"SecurityGroupIds": [{"Ref": "WorkerGroup"}]}),
        Third=resource("Subnet", VpcId={"Ref": "Vpc"}, CidrBlock="10.0.2.0/24"),
        Fleet={
            "Type": "AWS::AutoScaling::AutoScalingGroup",
            "Properties": {
                "LaunchTemplate": {"LaunchTemplateId": {"Ref": "Template"}, "Version": "1"},
                "VPCZoneIdentifier": [{"Ref": "WorkerSubnet"}, {"Ref": "Third"}],
            },
        },
    )
    proof = prove(load({"cluster.yaml": template}))
    assert {item.flow.id for item in proof.closed} == {"message-tree", "srun-io-in-job", "mpi"}


def test_an_entry_for_which_no_number_is_free_says_so() -> None:
    (missing,) = flow_of(proof_of(guarded(entry(1, "deny", ports=(6818, 6818)), ALL_IN, ALL_OUT)), "node-rpc").missing
    assert missing.number is None
    assert missing.reason.endswith("from Head; no number before its first entry is free: give that a higher one")


def test_an_entry_without_its_protocol_admits_nothing() -> None:
    bare = entry(100, "allow")
    del bare["Properties"]["Protocol"]
    found = flow_of(proof_of(guarded(bare, ALL_OUT)), "node-rpc")
    assert found.status is Status.UNKNOWN
    assert "the protocol that is not given of network ACL entry 100" in found.needs[0]

"""What templates leave unsaid: nothing is taken for open or closed, and no code is shown that cannot be deployed."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_cluster.reachability import InputError, Proof, Status, load, prove
from tests.unit.small_clusters import (
    Template,
    all_are,
    cluster,
    everything_open,
    flow_of,
    group,
    ingress,
    instance,
    proof_of,
    resource,
    statuses,
)

HEAD, WORKERS = {"Ref": "HeadGroup"}, {"Ref": "WorkerGroup"}
STRING = {"Type": "String"}
MADE_HERE = {"Fn::Equals": [{"Ref": "Existing"}, ""]}


def conditional_head(*, head: str) -> Proof:
    """Prove a cluster whose head's group is made only where no existing one is given."""
    either = {"Fn::If": ["Made", HEAD, {"Ref": "Existing"}]}
    template = cluster(
        {
            "HeadGroup": {**group(), "Condition": "Made"},
            "Head": resource("Instance", SecurityGroupIds=[either]),
            "ToHead": ingress(either, "WorkerGroup"),
            "ToWorkers": ingress("WorkerGroup", either),
            "BetweenWorkers": ingress("WorkerGroup", "WorkerGroup"),
        },
        parameters={"Existing": STRING},
    )
    return proof_of({**template, "Conditions": {"Made": MADE_HERE}}, head=head)


def test_a_group_that_is_not_always_there_proves_nothing_of_the_machine_that_is() -> None:
    proof = conditional_head(head="HeadGroup")
    assert statuses(proof) == all_are(Status.UNKNOWN)
    assert [item.needs for item in proof.flows] == [
        (
            "who is head and worker where ${Existing} is not '': name the machines by head and workers, such as Head "
            "and Worker1, not groups that are not there then",
        )
    ] * len(proof.flows)
    assert flow_of(conditional_head(head="Head"), "mpi").status is Status.OPEN


def test_a_cluster_that_is_not_always_there_is_proven_where_it_is() -> None:
    template = cluster(everything_open(), parameters={"Existing": STRING})
    for made in template["Resources"].values():
        made["Condition"] = "Made"
    proof = proof_of({**template, "Conditions": {"Made": MADE_HERE}})
    assert statuses(proof) == all_are(Status.OPEN)


def with_nested(value: Any, **rules: Template) -> Template:
    properties = {"TemplateURL": "https://bucket.s3.amazonaws.com/rules.yaml", "Parameters": {"Groups": value}}
    return cluster({**rules, "Rules": {"Type": "AWS::CloudFormation::Stack", "Properties": properties}})


@pytest.mark.parametrize("value", [HEAD, {"Fn::Join": [",", [HEAD, WORKERS]]}, {"Fn::Sub": "${HeadGroup}"}])
def test_a_nested_stack_without_its_template_may_add_rules_to_what_it_is_given(value: Any) -> None:
    found = flow_of(proof_of(with_nested(value)), "controller-rpc")
    assert found.status is Status.UNKNOWN
    assert (
        "the inbound rules of security group HeadGroup that nested stack Rules adds: give its template as well"
        in found.needs
    )


def test_a_nested_stack_whose_template_is_given_adds_what_it_says() -> None:
    rule = resource("SecurityGroupIngress", GroupId={"Ref": "Groups"}, CidrIp="10.0.0.0/16", IpProtocol="-1")
    rules = {"Parameters": {"Groups": STRING}, "Resources": {"Rule": rule}}
    proof = prove(load({"a.yaml": with_nested(HEAD), "rules.yaml": rules}), head=["Head"], workers=["Worker1"])
    assert flow_of(proof, "controller-rpc").status is Status.OPEN
    assert flow_of(proof, "node-rpc").status is Status.CLOSED


def test_a_rule_without_its_protocol_opens_nothing() -> None:
    rules = {**everything_open(), "ToHead": ingress("HeadGroup", "WorkerGroup", FromPort=0, ToPort=65535)}
    found = flow_of(proof_of(cluster(rules)), "controller-rpc")
    assert (found.status, found.needs) == (Status.UNKNOWN, ("the protocol that is not given of ToHead",))


@pytest.mark.parametrize(
    ("group_id", "need"),
    [
        (
            {"Fn::ImportValue": "net-Head"},
            "ImportValue(net-Head): give the template that exports it as well, and if its stack's name is in the "
            "export's, AWS::StackName",
        ),
        (
            {"Fn::GetAtt": ["Nested", "Outputs.Head"]},
            "Nested.Outputs.Head: give the template of nested stack Nested as well",
        ),
    ],
)
def test_a_group_of_another_template_asks_for_that_template(group_id: Any, need: str) -> None:
    nested = {"Type": "AWS::CloudFormation::Stack", "Properties": {"TemplateURL": "elsewhere.yaml"}}
    template = cluster({"Head": resource("Instance", SecurityGroupIds=[group_id]), "Nested": nested})
    assert flow_of(proof_of(template), "srun-io").needs == (f"the inbound rules of security group {need}",)


def test_the_stack_name_finds_the_export() -> None:
    export = {"Value": HEAD, "Export": {"Name": {"Fn::Sub": "${AWS::StackName}-Head"}}}
    other = {**cluster(everything_open()), "Outputs": {"Head": export}}
    importing = {"Resources": {"Main": resource("Instance", SecurityGroupIds=[{"Fn::ImportValue": "net-Head"}])}}
    templates = load({"a.yaml": importing, "net.yaml": other}, {"AWS::StackName": "net"})
    assert statuses(prove(templates, head=["Main"], workers=["Worker1"])) == all_are(Status.OPEN)


def test_machines_may_give_their_groups_by_name() -> None:
    named = {
        "HeadGroup": group(GroupName="slurm-head"),
        "Head": resource("Instance", SecurityGroups=["slurm-head"]),
        "Worker1": resource("Instance", SecurityGroups=[WORKERS]),
        "Worker2": resource("Instance", SecurityGroups=[WORKERS]),
    }
    assert statuses(proof_of(cluster({**everything_open(), **named}))) == all_are(Status.OPEN)
    rule = resource("SecurityGroupIngress", GroupName="old", SourceSecurityGroupName="old", IpProtocol="-1")
    old = resource("Instance", SecurityGroups=["old"])
    proof = proof_of(cluster({"Head": old, "Worker1": old, "Worker2": old, "Rule": rule}))
    assert [rule.id for rule in flow_of(proof, "mpi").by] == ["Rule"]


def added(template: Template) -> dict[str, Any]:
    """Return the properties of the rule that is to open srun-io."""
    (missing,) = flow_of(proof_of(template, workers="Worker1"), "srun-io").missing
    properties: dict[str, Any] = missing.resource()["Properties"]
    return properties


@pytest.mark.parametrize(
    ("workers", "written"),
    [
        ({"SecurityGroupIds": {"Ref": "Ids"}}, {"Fn::Select": [0, {"Ref": "Ids"}]}),
        (
            {"SecurityGroupIds": [{"Fn::GetAtt": ["Lookup", "GroupId"]}]},
            {"Fn::GetAtt": ["Lookup", "GroupId"]},
        ),
        (
            {"SecurityGroupIds": [{"Fn::GetAtt": ["Nested", "Outputs.Group"]}]},
            {"Fn::GetAtt": ["Nested", "Outputs.Group"]},
        ),
        (
            {"LaunchTemplate": {"LaunchTemplateId": {"Ref": "Launch"}, "Version": "1"}},
            {"Ref": "thegroupsofLaunchId"},
        ),
        ({"SubnetId": "subnet-1"}, {"Ref": "thedefaultgroupofVPCunknownId"}),
    ],
)
def test_a_group_is_written_as_a_template_can_write_it(workers: Template, written: Any) -> None:
    template = cluster(
        {
            "Worker1": resource("Instance", **workers),
            "Worker2": None,
            "Lookup": {"Type": "Custom::Lookup"},
            "Nested": {"Type": "AWS::CloudFormation::Stack", "Properties": {"TemplateURL": "elsewhere.yaml"}},
        },
        parameters={"Ids": {"Type": "List<AWS::EC2::SecurityGroup::Id>"}, "Launch": STRING},
    )
    assert added(template)["SourceSecurityGroupId"] == written


def test_an_item_of_a_list_parameter_is_no_group_of_its_own_stack() -> None:
    template = cluster(
        {"Worker1": resource("Instance", SecurityGroupIds={"Ref": "Ids"}), "Worker2": instance("WorkerGroup")},
        parameters={"Ids": {"Type": "List<AWS::EC2::SecurityGroup::Id>"}},
    )
    (missing,) = flow_of(proof_of(template, workers="Worker1"), "srun-io").missing
    template["Resources"][missing.logical_id] = missing.resource()
    found = flow_of(proof_of(template, workers="Worker1"), "srun-io")
    assert [rule.id for rule in found.by] == [missing.logical_id]
    assert found.needs == ("the outbound rules of security group ${Ids}",)


def test_what_a_macro_makes_may_be_referred_to() -> None:
    outputs = {"Api": {"Value": {"Ref": "ServerlessRestApi"}}, "Role": {"Value": {"Fn::GetAtt": ["MainRole", "Arn"]}}}
    inner: Template = {"Resources": {"Function": {"Type": "AWS::Serverless::Function"}}, "Outputs": outputs}
    outer = cluster(
        {**everything_open(), "Api": {"Type": "AWS::CloudFormation::Stack", "Properties": {"TemplateURL": "api.yaml"}}}
    )
    given: dict[str, Template] = {"a.yaml": outer, "api.yaml": {**inner, "Transform": "AWS::Serverless-2016-10-31"}}
    proof = prove(load(given), head=["Head"], workers=["Worker1", "Worker2"])
    assert statuses(proof) == all_are(Status.OPEN)
    with pytest.raises(InputError, match="refers to ServerlessRestApi"):
        prove(load({"a.yaml": outer, "api.yaml": inner}), head=["Head"], workers=["Worker1", "Worker2"])


@pytest.mark.parametrize("written", [{"Ref": "MadeGroup"}, {"Fn::GetAtt": ["MadeGroup", "GroupId"]}])
def test_a_group_that_a_macro_makes_is_named_as_the_template_names_it(written: Any) -> None:
    template = cluster({"Worker1": resource("Instance", SecurityGroupIds=[written])})
    assert added({**template, "Transform": "Maker"})["SourceSecurityGroupId"] == written


def test_too_deep_a_template_is_refused() -> None:
    rules: list[Any] = []
    for _ in range(900):
        rules = [rules]
    with pytest.raises(InputError, match=r"cluster\.yaml: lists and mappings are nested too deeply"):
        proof_of(cluster({"HeadGroup": resource("SecurityGroup", SecurityGroupIngress=rules)}))

"""Security groups are the flow table, no more and no less, and no address range may come in."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import aws_cdk as cdk
import pytest

from slurm_cluster import PortRange, SlurmCluster
from slurm_cluster.model.flows import Role, SlurmPorts, cluster_flows

Template = dict[str, Any]
Resources = Callable[[Template, str], dict[str, Any]]
NewApp = Callable[..., cdk.App]
TemplateOf = Callable[[cdk.Stack], Template]
Opening = tuple[Role, Role, PortRange]


def _openings(template: Template, resources: Resources) -> set[Opening]:
    roles = {
        name: Role.HEAD if "Head" in name else Role.WORKER for name in resources(template, "AWS::EC2::SecurityGroup")
    }
    found = set()
    for item in resources(template, "AWS::EC2::SecurityGroupIngress").values():
        rule = item["Properties"]
        assert rule["IpProtocol"] == "tcp"
        found.add(
            (
                roles[rule["SourceSecurityGroupId"]["Fn::GetAtt"][0]],
                roles[rule["GroupId"]["Fn::GetAtt"][0]],
                PortRange(rule["FromPort"], rule["ToPort"]),
            )
        )
    return found


def test_rules_of_the_default_cluster(default_template: Template, resources: Resources) -> None:
    assert _openings(default_template, resources) == {
        (Role.WORKER, Role.HEAD, PortRange(6817, 6817)),
        (Role.WORKER, Role.HEAD, PortRange(1024, 65535)),
        (Role.HEAD, Role.WORKER, PortRange(6818, 6818)),
        (Role.HEAD, Role.WORKER, PortRange(1024, 65535)),
        (Role.WORKER, Role.WORKER, PortRange(0, 65535)),
    }


@pytest.mark.parametrize("srun_ports", [PortRange(1024, 65535), PortRange(61000, 63999)])
def test_every_flow_is_open_and_every_rule_has_a_flow(
    srun_ports: PortRange, new_app: NewApp, template_of: TemplateOf, resources: Resources
) -> None:
    stack = cdk.Stack(new_app(), "Stack")
    SlurmCluster(stack, "Cluster", srun_ports=srun_ports)
    openings = _openings(template_of(stack), resources)
    flows = cluster_flows(SlurmPorts(srun=srun_ports))
    for flow in flows:
        assert any((o, to) == (flow.opener, flow.listener) and flow.ports in ports for o, to, ports in openings), flow
    for opener, listener, ports in openings:
        assert any((flow.opener, flow.listener, flow.ports) == (opener, listener, ports) for flow in flows)


def test_no_ingress_from_an_address_range(default_template: Template, resources: Resources) -> None:
    for item in resources(default_template, "AWS::EC2::SecurityGroup").values():
        assert "SecurityGroupIngress" not in item["Properties"]
    for item in resources(default_template, "AWS::EC2::SecurityGroupIngress").values():
        assert not {"CidrIp", "CidrIpv6", "SourcePrefixListId"} & set(item["Properties"])


def test_descriptions_are_such_as_ec2_takes(default_template: Template, resources: Resources) -> None:
    rules = [item["Properties"] for item in resources(default_template, "AWS::EC2::SecurityGroupIngress").values()]
    for rule in rules:
        assert re.fullmatch(r"[a-zA-Z0-9. _\-:/()#,@\[\]+=&;{}!$*]{1,255}", rule["Description"])
    (srun_io,) = (rule for rule in rules if rule["FromPort"] == 1024 and "Head" in rule["GroupId"]["Fn::GetAtt"][0])
    assert srun_io["Description"].startswith("srun-io: task I/O")


def test_narrow_range_reaches_slurm_and_the_rules_from_one_object(
    new_app: NewApp, template_of: TemplateOf, resources: Resources
) -> None:
    stack = cdk.Stack(new_app(), "Stack")
    SlurmCluster(stack, "Cluster", srun_ports=PortRange(61000, 63999))
    template = template_of(stack)
    (cluster,) = (
        item["Properties"]["Value"]
        for name, item in resources(template, "AWS::SSM::Parameter").items()
        if "Cluster" in name and "SharedCluster" in name
    )
    assert '"srun":{"first":61000,"last":63999}' in "".join(
        part for part in cluster["Fn::Join"][1] if isinstance(part, str)
    )

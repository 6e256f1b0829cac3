"""A cluster of three machines without any rule, to which a test adds what it is about."""

from __future__ import annotations

from typing import Any

from slurm_cluster.model.flows import SlurmPorts
from slurm_cluster.reachability import FlowProof, Proof, Status, load, prove

Template = dict[str, Any]

ALL = {"IpProtocol": "-1"}
ANYWHERE = {"CidrIp": "0.0.0.0/0"}
FLOWS = (
    "controller-rpc",
    "node-rpc",
    "message-tree",
    "srun-io",
    "srun-io-in-job",
    "controller-to-srun-in-job",
    "mpi",
)


def cluster(resources: Template | None = None, *, parameters: Template | None = None) -> Template:
    """Return a template; a resource that is given takes the place of the one of its name, None takes it out."""
    found: Template = {
        "Vpc": resource("VPC", CidrBlock="10.0.0.0/16"),
        "Subnet": resource("Subnet", VpcId={"Ref": "Vpc"}, CidrBlock="10.0.0.0/24"),
        "HeadGroup": group(),
        "WorkerGroup": group(),
        "Head": instance("HeadGroup"),
        "Worker1": instance("WorkerGroup"),
        "Worker2": instance("WorkerGroup"),
        **(resources or {}),
    }
    return {
        "Parameters": parameters or {},
        "Resources": {name: item for name, item in found.items() if item is not None},
    }


def resource(kind: str, **properties: Any) -> Template:
    """Return a resource of EC2."""
    return {"Type": f"AWS::EC2::{kind}", "Properties": properties}


def group(*ingress: Template, **properties: Any) -> Template:
    """Return a security group with inline rules."""
    rules = {"SecurityGroupIngress": list(ingress)} if ingress else {}
    return resource("SecurityGroup", GroupDescription="a group", VpcId={"Ref": "Vpc"}, **rules, **properties)


def instance(*groups: str, subnet: str = "Subnet", **properties: Any) -> Template:
    """Return an instance in groups of the template."""
    return resource(
        "Instance", SubnetId={"Ref": subnet}, SecurityGroupIds=[{"Ref": item} for item in groups], **properties
    )


def ingress(listener: Any, opener: Any, **rule: Any) -> Template:
    """Return a rule from group to group, for everything unless told otherwise."""
    return resource("SecurityGroupIngress", GroupId=_id(listener), SourceSecurityGroupId=_id(opener), **(rule or ALL))


def egress(opener: Any, listener: Any, **rule: Any) -> Template:
    """Return an outbound rule from group to group."""
    return resource(
        "SecurityGroupEgress", GroupId=_id(opener), DestinationSecurityGroupId=_id(listener), **(rule or ALL)
    )


def tcp(first: Any, last: Any | None = None, **more: Any) -> Template:
    """Return the ports of a rule."""
    return {"IpProtocol": "tcp", "FromPort": first, "ToPort": first if last is None else last, **more}


def everything_open() -> Template:
    """Return rules that open every flow of the cluster."""
    return {
        "ToHead": ingress("HeadGroup", "WorkerGroup"),
        "ToWorkers": ingress("WorkerGroup", "HeadGroup"),
        "BetweenWorkers": ingress("WorkerGroup", "WorkerGroup"),
    }


def proof_of(
    template: Template, *, ports: SlurmPorts | None = None, head: str = "Head", workers: str = "Worker1,Worker2"
) -> Proof:
    """Prove a template whose machines are told."""
    return prove(
        load({"cluster.yaml": template}), head=head.split(","), workers=workers.split(","), ports=ports or SlurmPorts()
    )


def flow_of(proof: Proof, flow_id: str) -> FlowProof:
    """Return what is proven of one flow."""
    return next(item for item in proof.flows if item.flow.id == flow_id)


def statuses(proof: Proof) -> dict[str, Status]:
    """Return each flow's status."""
    return {item.flow.id: item.status for item in proof.flows}


def all_are(status: Status) -> dict[str, Status]:
    """Return the same status for every flow."""
    return dict.fromkeys(FLOWS, status)


def _id(item: Any) -> Any:
    return item if isinstance(item, dict) or item.startswith("sg-") else {"Ref": item}

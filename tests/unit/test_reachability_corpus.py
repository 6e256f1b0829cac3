"""The proof of templates that this package did not write, each flow's status decided by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurm_cluster.reachability import Proof, Status, load, prove
from tests.unit.generated_cluster import generated_cluster

TEMPLATES = Path(__file__).parent / "reachability_templates"
FLOWS = (
    "controller-rpc",
    "node-rpc",
    "message-tree",
    "srun-io",
    "srun-io-in-job",
    "controller-to-srun-in-job",
    "mpi",
)
BETWEEN_WORKERS = {"message-tree", "srun-io-in-job", "mpi"}
EVERYTHING = set(FLOWS)


def proof_of(*names: str, **parameters: str) -> Proof:
    return prove(load([TEMPLATES / name for name in names], parameters))


def with_status(proof: Proof, status: Status) -> set[str]:
    return {item.flow.id for item in proof.flows if item.status is status}


def wider(proof: Proof) -> dict[str, str]:
    return {use.rule.id: use.wider for use in proof.wider}


@pytest.mark.parametrize(
    ("names", "parameters", "is_open", "is_closed"),
    [
        pytest.param(["origin_story.json"], {}, {"controller-rpc", "node-rpc"}, None, id="origin story, JSON by hand"),
        pytest.param(["own_vpc.yaml"], {}, EVERYTHING, None, id="YAML by hand"),
        pytest.param(
            ["own_vpc.yaml"], {"SlurmctldPort": "6818"}, EVERYTHING, None, id="YAML by hand, the srun rule suffices"
        ),
        pytest.param(
            ["stateless.yaml"],
            {},
            {"node-rpc", *BETWEEN_WORKERS},
            None,
            id="YAML by hand, a network ACL keeps answers out",
        ),
        pytest.param(["cdk_v1.template.json"], {}, EVERYTHING, None, id="CDK v1, one group"),
        pytest.param(
            ["cdk_v2.template.json"],
            {},
            {"controller-rpc", "node-rpc", "controller-to-srun-in-job"},
            None,
            id="CDK v2, workers may not open what nobody thought of",
        ),
        pytest.param(
            ["nested/root.yaml", "nested/groups.yaml", "nested/machine.yaml", "nested/fleet.yaml"],
            {},
            EVERYTHING - {"controller-to-srun-in-job"},
            None,
            id="nested stacks",
        ),
        pytest.param(
            ["exports/cluster.json", "exports/groups.json"],
            {},
            {"controller-rpc", "node-rpc"},
            None,
            id="groups of another stack",
        ),
        pytest.param(["exports/cluster.json"], {}, set(), set(), id="groups of another stack that is not given"),
        pytest.param(["existing_groups.yaml"], {}, {"node-rpc"}, set(), id="groups of the site, or not"),
        pytest.param(
            ["existing_groups.yaml"],
            {"ExistingWorkerGroup": ""},
            {"controller-rpc", "node-rpc", "srun-io"},
            None,
            id="no groups of the site",
        ),
        pytest.param(
            ["existing_groups.yaml"],
            {"ExistingWorkerGroup": "sg-0fedcba9876543210"},
            {"node-rpc"},
            set(),
            id="a known group of the site",
        ),
    ],
)
def test_each_flow_has_the_status_that_a_reader_finds(
    names: list[str], parameters: dict[str, str], is_open: set[str], is_closed: set[str] | None
) -> None:
    """What is neither open nor closed is unknown; where nothing is said of closed, nothing is unknown."""
    proof = proof_of(*names, **parameters)
    closed = EVERYTHING - is_open if is_closed is None else is_closed
    assert with_status(proof, Status.OPEN) == is_open
    assert with_status(proof, Status.CLOSED) == closed
    assert with_status(proof, Status.UNKNOWN) == EVERYTHING - is_open - closed


def test_the_origin_story_gets_the_rule_it_lacked() -> None:
    srun_io = next(item for item in proof_of("origin_story.json").flows if item.flow.id == "srun-io")
    (missing,) = srun_io.missing
    assert missing.reason == "no rule of HeadNodeSG lets in TCP 1024-6816, 6818-65535 from WorkerSG"
    assert missing.resource() == {
        "Type": "AWS::EC2::SecurityGroupIngress",
        "Properties": {
            "GroupId": {"Fn::GetAtt": ["HeadNodeSG", "GroupId"]},
            "SourceSecurityGroupId": {"Fn::GetAtt": ["WorkerSG", "GroupId"]},
            "IpProtocol": "tcp",
            "FromPort": 1024,
            "ToPort": 65535,
            "Description": "Slurm: TCP 1024-65535",
        },
    }


@pytest.mark.parametrize(
    ("names", "head", "workers"),
    [
        (["origin_story.json"], ("HeadNodeSG",), ("WorkerSG",)),
        (["own_vpc.yaml"], ("ControllerGroup",), ("ComputeGroup",)),
        (["stateless.yaml"], ("ClusterGroup",), ("ClusterGroup",)),
        (["cdk_v1.template.json"], ("ClusterSG0DFD5512",), ("ClusterSG0DFD5512",)),
        (["cdk_v2.template.json"], ("SlurmHeadSecurityGroup1B2A88E1",), ("SlurmWorkerSecurityGroup7C3B1F2D",)),
        (
            ["nested/root.yaml", "nested/groups.yaml", "nested/machine.yaml", "nested/fleet.yaml"],
            ("Groups/A",),
            ("Groups/B", "Groups/C"),
        ),
        (["exports/cluster.json", "exports/groups.json"], ("HeadGroupCC6C4F8A",), ("WorkerGroup27B1D0E3",)),
    ],
)
def test_head_and_workers_are_guessed_and_the_guess_is_said(
    names: list[str], head: tuple[str, ...], workers: tuple[str, ...]
) -> None:
    roles = proof_of(*names).roles
    assert (roles.head, roles.workers) == (head, workers)
    assert [guess.split(":")[0] for guess in roles.guessed] == ["head", "worker"]
    assert all(", because " in guess for guess in roles.guessed)


def test_what_is_wider_than_needed_is_named() -> None:
    assert wider(proof_of("origin_story.json")) == {
        "HeadNodeSG/SecurityGroupIngress/0": "no flow needs it",
        "WorkerSG/SecurityGroupIngress/0": "no flow needs it",
    }
    assert wider(proof_of("own_vpc.yaml")) == {
        "ControllerGroup/SecurityGroupIngress/0": "no flow needs it",
        "ControllerGroup/SecurityGroupIngress/1": "no flow needs it, other rules suffice",
        "ComputeGroup/SecurityGroupIngress/0": "ports 0-1023",
        "ComputeSelf": "protocols other than TCP, which only EFA needs",
    }


def test_a_generated_template_of_a_few_hundred_resources() -> None:
    template = generated_cluster(50)
    assert len(template["Resources"]) > 300
    proof = prove(load({"generated.json": template}))
    assert with_status(proof, Status.OPEN) == EVERYTHING
    assert proof.roles.head == ("HeadNodeSecurityGroup",)
    assert proof.roles.workers == ("ComputeSecurityGroup",)
    assert len(proof.roles.worker_members) == 150
    assert proof.roles.guessed == (
        "head: instance HeadNode, because its tag parallelcluster:node-type is HeadNode",
        f"worker: launch template {proof.roles.worker_members[0]} and 149 more, "
        "because its tag parallelcluster:node-type is Compute",
    )


def test_one_rule_less_in_a_generated_template_is_noticed() -> None:
    template = generated_cluster(10)
    del template["Resources"]["HeadNodeSecurityGroupComputeIngress"]
    assert with_status(prove(load({"generated.json": template})), Status.CLOSED) == {"controller-rpc", "srun-io"}


def test_a_generated_template_with_a_group_of_the_site_is_unknown_where_that_group_decides() -> None:
    proof = prove(load({"generated.json": generated_cluster(10)}, {"HeadNodeSecurityGroups": "sg-0123456789abcdef0"}))
    assert with_status(proof, Status.UNKNOWN) == EVERYTHING - BETWEEN_WORKERS
    assert with_status(proof, Status.OPEN) == BETWEEN_WORKERS
    needs = {need for item in proof.unknown for need in item.needs}
    assert needs == {
        "the inbound rules of security group sg-0123456789abcdef0",
        "the outbound rules of security group sg-0123456789abcdef0",
    }


def test_a_proof_is_a_json_object() -> None:
    for name in ("origin_story.json", "stateless.yaml", "existing_groups.yaml"):
        found = proof_of(name).to_dict()
        assert json.loads(json.dumps(found)) == found
        assert [flow["id"] for flow in found["flows"]] == list(FLOWS)

"""Who is head and who is worker: told by name, or guessed with a reason."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from slurm_cluster.reachability import InputError, Roles, load, prove
from tests.unit.small_clusters import Template, cluster, group, ingress, instance, resource, tcp


def roles(template: Template, *, head: Sequence[str] | None = None, workers: Sequence[str] | None = None) -> Roles:
    return prove(load({"t.yaml": template}), head=head, workers=workers).roles


def machines(**resources: Template | None) -> Template:
    """Return a template of whose names nothing speaks."""
    gone = dict.fromkeys(("Head", "HeadGroup", "WorkerGroup", "Worker1", "Worker2"))
    return cluster({**gone, "G1": group(), "G2": group(), **resources})


@pytest.mark.parametrize(
    ("head", "workers"),
    [
        (["Head"], ["Worker1", "Worker2"]),
        (["HeadGroup"], ["WorkerGroup"]),
        (["HeadGroup"], ["Worker1", "Worker2"]),
        (["t.yaml:HeadGroup"], ["t.yaml:Worker1", "Worker2"]),
    ],
)
def test_groups_and_machines_are_told_by_name(head: list[str], workers: list[str]) -> None:
    found = roles(cluster(), head=head, workers=workers)
    assert found == Roles(
        head=("HeadGroup",), workers=("WorkerGroup",), head_members=("Head",), worker_members=("Worker1", "Worker2")
    )


def test_one_name_needs_no_list() -> None:
    assert roles(cluster(), head="HeadGroup", workers="WorkerGroup").worker_members == ("Worker1", "Worker2")


def test_a_group_may_be_told_by_its_name_and_by_its_id() -> None:
    template = cluster(
        {"WorkerGroup": group(GroupName="my-workers"), "Head": resource("Instance", SecurityGroupIds=["sg-1"])}
    )
    found = roles(template, head=["sg-1"], workers=["my-workers"])
    assert (found.head_members, found.worker_members) == (("Head",), ("Worker1", "Worker2"))


def test_a_group_of_a_parameter_may_be_told_by_the_parameter() -> None:
    template = cluster(
        {"Head": resource("Instance", SecurityGroupIds=[{"Ref": "Site"}])}, parameters={"Site": {"Type": "String"}}
    )
    assert roles(template, head=["Site"], workers=["WorkerGroup"]).head == ("${Site}",)


def test_a_group_that_no_machine_of_the_template_has_stands_for_its_machines() -> None:
    template = cluster({"Head": None, "Worker1": None, "Worker2": None})
    found = roles(template, head=["HeadGroup"], workers=["WorkerGroup"])
    assert (found.head, found.workers, found.head_members) == (("HeadGroup",), ("WorkerGroup",), ())


def test_a_machine_with_the_groups_of_both_is_what_its_own_group_says() -> None:
    template = cluster({"Head": instance("HeadGroup", "WorkerGroup")})
    found = roles(template, head=["HeadGroup"], workers=["WorkerGroup"])
    assert (found.head_members, found.worker_members) == (("Head",), ("Worker1", "Worker2"))


@pytest.mark.parametrize(
    ("resources", "guessed"),
    [
        (
            {"M1": instance("G1", Tags=[{"Key": "Name", "Value": "hpc-controller"}]), "M2": instance("G2")},
            (
                "head: instance M1, because its name says controller",
                "worker: instance M2, because it is the only other machine",
            ),
        ),
        (
            {
                "M1": instance("G1", UserData={"Fn::Base64": "install slurmctld slurmd"}),
                "M2": instance("G2", UserData={"Fn::Base64": "install slurmd"}),
            },
            (
                "head: instance M1, because its user data names slurmctld",
                "worker: instance M2, because its user data names slurmd",
            ),
        ),
        (
            {
                "M1": instance("G1"),
                "M2": instance("G2"),
                "R1": ingress("G1", "G2", **tcp(6817)),
                "R2": ingress("G2", "G1", **tcp(6818)),
            },
            (
                "head: instance M1, because its security group G1 lets in TCP 6817",
                "worker: instance M2, because its security group G2 lets in TCP 6818",
            ),
        ),
        (
            {"R1": ingress("G1", "G2", **tcp(6817)), "R2": ingress("G2", "G1", **tcp(6818))},
            (
                "head: machines of G1, because security group G1 lets in TCP 6817",
                "worker: machines of G2, because security group G2 lets in TCP 6818",
            ),
        ),
        (
            {
                "M1": instance("G1"),
                "T": resource("LaunchTemplate", LaunchTemplateData={"SecurityGroupIds": [{"Ref": "G2"}]}),
            },
            (
                "head: instance M1, because it is the only other machine",
                "worker: launch template T, because it is a launch template",
            ),
        ),
    ],
)
def test_a_guess_has_a_reason(resources: Template, guessed: tuple[str, ...]) -> None:
    assert roles(machines(**resources)).guessed == guessed


def test_what_is_told_is_not_guessed() -> None:
    found = roles(machines(M1=instance("G1"), M2=instance("G2")), head=["M2"])
    assert found.guessed == ("worker: instance M1, because it is the only other machine",)


def test_nothing_speaks_for_anyone() -> None:
    with pytest.raises(
        InputError,
        match=r"cannot tell which is the head node and which are the workers: there are the machines instance M1, "
        r"instance M2 and the security groups G1, G2, .*; name them by head=\[...\] and workers=\[...\] \(--head --w",
    ):
        roles(machines(M1=instance("G1"), M2=instance("G2")))


def test_a_name_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(InputError, match=r"head 'Absent' is neither a security group nor a machine .*instance Head, "):
        roles(cluster(), head=["Absent"], workers=["WorkerGroup"])


def test_a_name_in_two_templates_has_to_be_told_with_the_template() -> None:
    templates = load({"a.yaml": cluster(), "b.yaml": cluster()})
    with pytest.raises(
        InputError, match=r"head 'Head' is in a\.yaml and in b\.yaml: write it as a\.yaml:Head, with the"
    ):
        prove(templates, head=["Head"], workers=["a.yaml:Worker1"])
    found = prove(templates, head=["b.yaml:Head"], workers=["b.yaml:WorkerGroup"]).roles
    assert found.worker_members == ("Worker1", "Worker2")

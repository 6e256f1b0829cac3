"""The proof against an oracle that sends every packet, on random clouds written as random templates."""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from slurm_cluster.reachability import Proof, Status, load, prove
from tests.unit.packet_oracle import Cloud
from tests.unit.random_clouds import PORTS, Writer, clouds, conditional, without

EXAMPLES = int(os.environ.get("SLURM_CLUSTER_PROPERTY_EXAMPLES", "200"))
"""Random cases for each property."""

cases = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


seeds = st.integers(0, 1 << 32)
"""Seeds of what is not worth shrinking: the style of the template and what it hides."""


def coin(seed: int, sides: int = 2) -> Callable[[], bool]:
    """Return what is true once in so many times."""
    random = Random(seed)  # noqa: S311 (no secret)
    return lambda: random.randrange(sides) == 0


def proof_of(writer: Writer, template: dict[str, Any]) -> Proof:
    return prove(
        load({"random.json": template}),
        head=writer.selectors("head"),
        workers=writer.selectors("worker"),
        ports=PORTS,
    )


def truths(cloud: Cloud, proof: Proof) -> dict[str, bool]:
    return {
        item.flow.id: cloud.is_open(item.flow.opener, item.flow.listener, item.flow.ports.first, item.flow.ports.last)
        for item in proof.flows
    }


@cases
@given(cloud=clouds(), seed=seeds)
def test_what_is_wholly_known_is_decided_as_the_packets_decide(cloud: Cloud, seed: int) -> None:
    writer = Writer(cloud, choose=coin(seed), hide=lambda: False)
    proof = proof_of(writer, writer.template())
    truth = truths(cloud, proof)
    for item in proof.flows:
        event(f"{item.flow.id} {item.status}")
    assert {item.flow.id: item.status for item in proof.flows} == {
        flow_id: Status.OPEN if is_open else Status.CLOSED for flow_id, is_open in truth.items()
    }


@cases
@given(cloud=clouds(), seed=seeds)
def test_what_a_template_hides_never_makes_the_proof_wrong(cloud: Cloud, seed: int) -> None:
    """Hidden: addresses, ports, ranges, prefix lists, groups of elsewhere and their rules, conditions."""
    writer = Writer(cloud, choose=coin(seed), hide=coin(seed, 6))
    template = writer.template()
    conditions = Random(seed)  # noqa: S311 (no secret)
    rules = [name for name in template["Resources"] if "Rule" in name]
    present = {name: conditions.random() < 0.5 for name in conditions.sample(rules, min(len(rules), seed % 4))}
    absent = {
        (group.name, number)
        for group in cloud.groups
        for number in range(len(group.rules))
        if present.get(f"{group.name}Rule{number}") is False
    }
    proof = proof_of(writer, conditional(template, present))
    truth = truths(without(cloud, absent), proof)
    for item in proof.flows:
        event(f"{item.flow.id} {item.status}")
        assert item.status is not Status.OPEN or truth[item.flow.id], item
        assert item.status is not Status.CLOSED or not truth[item.flow.id], item
        assert bool(item.needs) is (item.status is Status.UNKNOWN)


@cases
@given(cloud=clouds(), seed=seeds)
def test_the_rules_that_are_missing_open_what_is_closed(cloud: Cloud, seed: int) -> None:
    writer = Writer(cloud, choose=coin(seed), hide=lambda: False)
    template = writer.template()
    missing = [rule for item in proof_of(writer, template).closed for rule in item.missing]
    event(f"{min(len(missing), 10)} rules missing")
    blocked = [rule for rule in missing if rule.network_acl and rule.number is None]
    added = {rule.logical_id: rule.resource() for rule in missing}
    assert not set(added) & set(template["Resources"])
    mended = {**template, "Resources": {**template["Resources"], **added}}
    # an entry that denies and is the first leaves no number before it
    assert not proof_of(writer, mended).closed or blocked


@cases
@given(cloud=clouds(), seed=seeds)
def test_a_rule_that_no_flow_needs_may_go(cloud: Cloud, seed: int) -> None:
    """Every rule that opens nothing can be left out at once, and no flow that was open is closed."""
    writer = Writer(cloud, choose=lambda: False, hide=lambda: False)
    template = writer.template()
    before = proof_of(writer, template)
    unneeded = {use.rule.id for use in before.rules if not use.flows and use.rule.direction == "ingress"}
    event(f"{min(len(unneeded), 5)} rules go")
    left = {name: item for name, item in template["Resources"].items() if name not in unneeded}
    after = proof_of(writer, {**template, "Resources": left})
    assert [item.status for item in after.flows] == [item.status for item in before.flows]

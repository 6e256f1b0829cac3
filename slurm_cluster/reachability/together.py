"""One proof out of those of every cluster that some templates may make."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from slurm_cluster.model.flows import Flow
from slurm_cluster.reachability.network import Network
from slurm_cluster.reachability.proof import FlowProof, Proof, Roles, RuleUse, Status
from slurm_cluster.reachability.values import unique
from slurm_cluster.reachability.worlds import World


def together(proofs: Sequence[tuple[World, Proof]], undecided: Sequence[tuple[World, Network]] = ()) -> Proof:
    """Return what holds in all worlds: a flow that is closed in some of them only depends on their conditions.

    Args:
        proofs: the worlds in which the cluster is found.
        undecided: those in which it is not. One that has its machines nevertheless may hold it with other groups.
    """
    proof = _of_all(proofs)
    needs = tuple(_unfound(proof, undecided))
    if not needs:
        return proof
    flows = (
        replace(item, status=Status.UNKNOWN, needs=(*item.needs, *needs), assumed=()) if _may_be_open(item) else item
        for item in proof.flows
    )
    return replace(proof, flows=tuple(flows))


def _may_be_open(item: FlowProof) -> bool:
    return item.status is not Status.CLOSED


def _unfound(proof: Proof, undecided: Iterable[tuple[World, Network]]) -> Iterator[str]:
    for world, network in undecided:
        names = {member.name for member in network.members}
        machines = [names.intersection(found) for found in (proof.roles.head_members, proof.roles.worker_members)]
        if all(machines):
            yield (
                f"who is head and worker where {world.text()}: name the machines by head and workers, such as "
                f"{' and '.join(min(found) for found in machines)}, not groups that are not there then"
            )


def _of_all(proofs: Sequence[tuple[World, Proof]]) -> Proof:
    if len(proofs) == 1:
        return proofs[0][1]
    order = [item.flow for item in proofs[0][1].flows]
    return Proof(
        roles=_roles([proof.roles for _, proof in proofs]),
        flows=tuple(_flow([(world, proof.flows[number]) for world, proof in proofs]) for number in range(len(order))),
        rules=_rules([proof.rules for _, proof in proofs], order),
    )


def _roles(roles: Sequence[Roles]) -> Roles:
    return Roles(
        head=unique(group for item in roles for group in item.head),
        workers=unique(group for item in roles for group in item.workers),
        guessed=unique(guess for item in roles for guess in item.guessed),
        head_members=unique(member for item in roles for member in item.head_members),
        worker_members=unique(member for item in roles for member in item.worker_members),
    )


def _flow(proofs: Sequence[tuple[World, FlowProof]]) -> FlowProof:
    statuses = {proof.status for _, proof in proofs}
    status = statuses.pop() if len(statuses) == 1 else Status.UNKNOWN
    differ = bool(statuses)
    needs = [need for _, proof in proofs for need in proof.needs]
    if differ:
        needs += [f"whether {world.text()}: then it is {proof.status}" for world, proof in proofs if _closed(proof)]
    return FlowProof(
        flow=proofs[0][1].flow,
        status=status,
        by=unique(rule for _, proof in proofs for rule in proof.by),
        missing=unique(rule for _, proof in proofs for rule in proof.missing),
        needs=unique(needs),
        assumed=unique(item for _, proof in proofs for item in proof.assumed) if status is Status.OPEN else (),
    )


def _closed(proof: FlowProof) -> bool:
    return proof.status is Status.CLOSED


def _rules(uses: Iterable[Sequence[RuleUse]], order: Sequence[Flow]) -> tuple[RuleUse, ...]:
    """Return each rule once; what of it is needed in one world is needed."""
    found: dict[tuple[str, str, str], list[RuleUse]] = {}
    for use in (use for item in uses for use in item):
        found.setdefault((use.rule.template, use.rule.id, use.rule.peer), []).append(use)
    return tuple(_use(alike, order) for alike in found.values())


def _use(alike: Sequence[RuleUse], order: Sequence[Flow]) -> RuleUse:
    # where it opens nothing, all of it is too much, which says nothing of where it does
    serving = [use for use in alike if use.flows] or list(alike)
    flows = tuple(flow for flow in order if any(flow in use.flows for use in serving))
    return replace(min(serving, key=lambda use: bool(use.wider)), flows=flows)

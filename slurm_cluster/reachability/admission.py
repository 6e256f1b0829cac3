"""What security groups and network ACLs let through between two machines.

Each side is looked at twice: as if every doubtful rule let nothing through, and as if each let everything through that
it may. What passes the first way is open, what does not pass the second way is closed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from slurm_cluster.model.flows import ALL_TCP, KERNEL_TCP, PortRange
from slurm_cluster.reachability.endpoint import Answer, Endpoint, every, in_ranges, is_peer
from slurm_cluster.reachability.network import AclEntry, GroupRule, Network, NetworkAcl
from slurm_cluster.reachability.ports import Ports, common, minus, union
from slurm_cluster.reachability.proof import Direction
from slurm_cluster.reachability.values import Id, Token, among, same, unique


@dataclass(frozen=True, kw_only=True)
class Passage:
    """What one guard lets through of some ports.

    Args:
        shut: the ports that certainly do not pass.
        unsure: the ports of which nobody can tell.
        by: the rules that certainly let something through, with the ports.
        needs: what one would have to know about the unsure ports.
    """

    shut: Ports = ()
    unsure: Ports = ()
    by: tuple[tuple[GroupRule, Ports], ...] = ()
    needs: tuple[str, ...] = ()


def through_groups(
    network: Network, guarded: Endpoint, peer: Endpoint, direction: Direction, ports: PortRange
) -> Passage:
    """Return what the groups of one machine let through from (or to) another."""
    by: list[tuple[GroupRule, Ports]] = []
    certain: list[PortRange] = []
    possible: list[tuple[Ports, str]] = []
    for rule, attached in _rules(network, guarded, direction):
        about = every(attached, _tcp(rule), is_peer(network, rule.peer, peer))
        allowed = common(ALL_TCP if isinstance(rule.ports, Token) or rule.ports is None else rule.ports, ports)
        if isinstance(rule.ports, Token):
            about = every(about, f"the ports {rule.ports} of {rule.found.id}")
        if not allowed or about is False:
            continue
        if about is True:
            by.append((rule, allowed))
            certain += allowed
        else:
            possible.append((allowed, about))
    for name, open_by_default in _unlisted(network, guarded, direction):
        if open_by_default:
            certain.append(ports)
        else:
            possible.append(((ports,), f"the {_way(direction)} rules of security group {name}"))
    left = minus([ports], union(certain))
    unsure = minus(left, minus(left, union(item for allowed, _ in possible for item in allowed)))
    needs = [need for allowed, need in possible if minus(allowed, union(certain))]
    return Passage(shut=minus(left, unsure), unsure=unsure, by=tuple(by), needs=unique(needs) if unsure else ())


def _rules(network: Network, guarded: Endpoint, direction: Direction) -> Iterator[tuple[GroupRule, Answer]]:
    """Yield the rules that an endpoint's groups have, or may have."""
    for rule in network.rules_of(direction):
        attached = among(rule.group, guarded.groups)
        if attached:
            yield rule, True
        elif attached is None:
            yield rule, f"which security group {rule.group} is, to which {rule.found.id} adds a rule"


def _unlisted(network: Network, guarded: Endpoint, direction: Direction) -> Iterator[tuple[str, bool]]:
    """Yield the groups that may let through more than their rules say, and whether they certainly let out all."""
    for group_id in guarded.groups:
        group = network.groups.get(group_id)
        if group is None or not group.complete:
            yield f"{group_id}{_whence(group_id)}", False
        elif group.extended_by:
            yield f"{group.name} that nested stack {group.extended_by} adds: give its template as well", False
        elif direction is Direction.EGRESS and group.allows_all_egress:
            # a rule that may be this group's would have taken the default one's place
            doubtful = any(same(rule.group, group_id) is None for rule in network.rules_of(direction))
            yield group.name, not doubtful


def _whence(group: Id) -> str:
    """Return what to give for the rules of a group that another template makes; empty where nothing would help."""
    kind, *operands = group.key if isinstance(group, Token) else ("",)
    if kind == "import":
        return ": give the template that exports it as well, and if its stack's name is in the export's, AWS::StackName"
    if kind == "attribute" and operands[-1].startswith("Outputs."):
        return f": give the template of nested stack {operands[-2]} as well"
    return ""


def _tcp(rule: GroupRule) -> Answer:
    if isinstance(rule.protocol, Token):
        return f"the protocol {rule.protocol} of {rule.found.id}"
    return rule.protocol in ("tcp", "-1")


def _way(direction: Direction) -> str:
    return "inbound" if direction is Direction.INGRESS else "outbound"


@dataclass(frozen=True, kw_only=True)
class AclCrossing:
    """One time that a packet passes a network ACL, and what comes of it.

    Args:
        subnet: endpoint in whose subnet it is.
        peer: the other end.
        direction: into the subnet or out of it.
        ports: the packet's possible destination ports.
        acl: the network ACL; None where it is not known.
        shut: those that certainly do not pass.
        needs: what one would have to know, if none is shut.
        assumed: what was taken for granted.
    """

    subnet: Endpoint
    peer: Endpoint
    direction: Direction
    ports: PortRange
    acl: NetworkAcl | None = None
    shut: Ports = ()
    needs: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()


def through_acls(network: Network, opener: Endpoint, listener: Endpoint, ports: PortRange) -> Iterator[AclCrossing]:
    """Yield every passage of a network ACL on the way there and, as ACLs keep no state, on the way back.

    Inside of one subnet no network ACL is asked.
    """
    if len(opener.subnets) == len(listener.subnets) == 1 and opener.subnets[0].id == listener.subnets[0].id:
        return
    for subnet, peer, direction, wanted in (
        (opener, listener, Direction.EGRESS, ports),
        (listener, opener, Direction.INGRESS, ports),
        (listener, opener, Direction.EGRESS, KERNEL_TCP),
        (opener, listener, Direction.INGRESS, KERNEL_TCP),
    ):
        yield _cross(network, subnet, peer, direction, wanted)


def _cross(network: Network, subnet: Endpoint, peer: Endpoint, direction: Direction, ports: PortRange) -> AclCrossing:
    unjudged = AclCrossing(subnet=subnet, peer=peer, direction=direction, ports=ports)
    if subnet.acl is None:
        taken = f"the network ACL of subnet {subnet.place} admits everything, as a VPC's default one does"
        return replace(unjudged, assumed=(taken,))
    acl = network.acls.get(subnet.acl)
    if acl is None or not acl.complete:
        return replace(unjudged, needs=(f"the entries of network ACL {subnet.acl}",))
    entries = sorted((item for item in acl.entries if item.direction is direction), key=lambda item: item.number)
    answers = [(entry, _about(entry, peer)) for entry in entries]
    shut = minus([ports], _admitted(answers, ports, doubtful=True))
    if shut:
        return replace(unjudged, acl=acl, shut=shut)
    sure = not minus([ports], _admitted(answers, ports, doubtful=False))
    unsure = unique(answer for _, answer in answers if isinstance(answer, str))
    return replace(unjudged, acl=acl, needs=() if sure else unsure)


def _about(entry: AclEntry, peer: Endpoint) -> Answer:
    protocol: Answer = entry.protocol in ("tcp", "-1")
    if isinstance(entry.protocol, Token):
        protocol = f"the protocol {entry.protocol} of network ACL entry {entry.number}"
    where: Answer = True
    if isinstance(entry.ports, Token):
        where = f"the ports {entry.ports} of network ACL entry {entry.number}"
    return every(protocol, where, in_ranges((entry.cidr,), peer))


def _admitted(answers: list[tuple[AclEntry, Answer]], ports: PortRange, *, doubtful: bool) -> Ports:
    """Return the ports that pass.

    Args:
        answers: entries in their order, and whether each is about the packet.
        ports: the ports asked for.
        doubtful: what a doubtful entry that allows is taken for; one that denies is taken for the opposite.
    """
    undecided: Ports = (ports,)
    admitted: list[PortRange] = []
    for entry, answer in answers:
        if answer is False or (answer is not True and entry.allow is not doubtful):
            continue
        limits = entry.ports if isinstance(entry.ports, PortRange) else ALL_TCP
        decided = [item for part in undecided for item in common(part, limits)]
        if entry.allow:
            admitted += decided
        undecided = minus(undecided, decided)
    return union(admitted)

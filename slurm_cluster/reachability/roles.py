"""Who is the head node and who are the workers: as told, or guessed with reasons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from slurm_cluster.model.flows import Role, SlurmPorts
from slurm_cluster.reachability.clues import Clue, group_clues, member_clues
from slurm_cluster.reachability.errors import InputError
from slurm_cluster.reachability.network import GroupPeer, Member, Network
from slurm_cluster.reachability.proof import Roles
from slurm_cluster.reachability.values import Id, unique

Members = Mapping[Role, tuple[Member, ...]]
_UNLAUNCHED = "machines of"
"""Kind of member that stands for the machines of a group in which the templates launch none."""


def find_roles(
    network: Network, *, head: Sequence[str] | None, workers: Sequence[str] | None, ports: SlurmPorts
) -> tuple[Roles, Members]:
    """Return who is what.

    Args:
        network: the network.
        head: names of the head node's groups or machine; None to guess.
        workers: the same of the workers.
        ports: Slurm's ports, a clue.

    Raises:
        InputError: there is no such group or machine, or nothing speaks for a guess.
    """
    head, workers = ([names] if isinstance(names, str) else names for names in (head, workers))
    told = {role: _told(network, names, role) for role, names in ((Role.HEAD, head), (Role.WORKER, workers)) if names}
    _tell_apart(told, {Role.HEAD: head or (), Role.WORKER: workers or ()})
    guesses: dict[Role, dict[Member, str]] = {}
    for role in Role:
        if role not in told:
            others = [member for members in told.values() for member in members]
            guesses[role] = _guess(network, role, others, ports)
    if any(not guess for guess in guesses.values()):
        raise _undecided(network, [role for role, guess in guesses.items() if not guess])
    members = {role: told.get(role) or tuple(guesses[role]) for role in Role}
    sentences = tuple(sentence for role, guess in guesses.items() for sentence in _sentences(role, guess))
    roles = Roles(
        head=_groups(members[Role.HEAD], members[Role.WORKER]),
        workers=_groups(members[Role.WORKER], members[Role.HEAD]),
        guessed=sentences,
        head_members=_names(members[Role.HEAD]),
        worker_members=_names(members[Role.WORKER]),
    )
    return roles, members


def _told(network: Network, names: Sequence[str], role: Role) -> tuple[Member, ...]:
    found: list[Member] = []
    for name in names:
        named = [member for member in network.members if name in _spellings(member.name, member.template)]
        groups = [group for group in _all_groups(network) if name in _group_spellings(network, group)]
        if not named and not groups:
            raise InputError(
                f"{role} {name!r} is neither a security group nor a machine of the templates; {_inventory(network)}"
            )
        if len(named) > 1 or len(groups) > 1:
            several = [member.template for member in named] or [network.groups[group].template for group in groups]
            raise InputError(
                f"{role} {name!r} is in {' and in '.join(several)}: write it as {several[0]}:{name}, with the template"
            )
        found += named
        for group in groups:
            found += [member for member in network.members if group in member.groups] or [_unlaunched(group)]
    return unique_members(found)


def _tell_apart(told: dict[Role, tuple[Member, ...]], names: Mapping[Role, Sequence[str]]) -> None:
    """Take from each role the machines that are only in it because they carry a group of both."""
    if len(told) < 2 or set(names[Role.HEAD]) == set(names[Role.WORKER]):
        return
    both = [member for member in told[Role.HEAD] if member in told[Role.WORKER]]
    for role in (Role.WORKER, Role.HEAD):
        rest = tuple(member for member in told[role] if member not in both or member.name in names[role])
        if rest and len(rest) < len(told[role]):
            told[role] = rest
            return


def _guess(network: Network, role: Role, others: Sequence[Member], ports: SlurmPorts) -> dict[Member, str]:
    """Return the machines of a role and why they are; empty if nothing speaks for any."""
    found: dict[Member, str] = {}
    undecided: list[Member] = []
    for member in network.members:
        if member in others:
            continue
        decided = _decide(member_clues(network, member, ports))
        if decided is None:
            undecided.append(member)
        elif decided[0] is role:
            found[member] = decided[1]
    if not found and len(undecided) == 1:
        found[undecided[0]] = "it is the only other machine"
    if not found:
        for group in network.groups:
            decided = _decide(group_clues(network, group, ports))
            if decided is not None and decided[0] is role and not any(group in item.groups for item in network.members):
                found[_unlaunched(group)] = decided[1].replace("its security group", "security group")
    return found


def _decide(clues: Iterable[Clue]) -> tuple[Role, str] | None:
    """Return the role for which more speaks, and the best reason."""
    found = list(clues)
    weights = {role: sum(clue.weight for clue in found if clue.role is role) for role in Role}
    if weights[Role.HEAD] == weights[Role.WORKER]:
        return None
    role = max(weights, key=lambda item: weights[item])
    return role, max((clue for clue in found if clue.role is role), key=lambda clue: clue.weight).reason


def _sentences(role: Role, guess: Mapping[Member, str]) -> Iterator[str]:
    """Yield a sentence for each reason."""
    for reason in unique(guess.values()):
        alike = [member for member, other in guess.items() if other == reason]
        more = f" and {len(alike) - 1} more" if len(alike) > 1 else ""
        yield f"{role}: {_label(alike[0])}{more}, because {reason}"


def _undecided(network: Network, roles: Sequence[Role]) -> InputError:
    options = " and ".join(f"{'head' if role is Role.HEAD else 'workers'}=[...]" for role in roles)
    flags = " ".join(f"--{'head' if role is Role.HEAD else 'workers'}" for role in roles)
    who = " and which are the ".join("head node" if role is Role.HEAD else "workers" for role in roles)
    return InputError(f"cannot tell which is the {who}: {_inventory(network)}; name them by {options} ({flags})")


def _inventory(network: Network) -> str:
    machines = ", ".join(_label(member) for member in network.members) or "none"
    groups = ", ".join(str(group) for group in _all_groups(network)) or "none"
    return f"there are the machines {machines} and the security groups {groups}"


def _label(member: Member) -> str:
    return f"{member.kind} {member.name}"


def _unlaunched(group: Id) -> Member:
    return Member(name=str(group), kind=_UNLAUNCHED, groups=(group,), many=True)


def _all_groups(network: Network) -> tuple[Id, ...]:
    """Return every group that is made, carried or named in a rule."""
    return unique(
        (
            *network.groups,
            *(group for member in network.members for group in member.groups),
            *(rule.group for rule in network.rules),
            *(rule.peer.group for rule in network.rules if isinstance(rule.peer, GroupPeer)),
        )
    )


def _group_spellings(network: Network, group: Id) -> set[str]:
    made = network.groups.get(group)
    spelled = _spellings(str(group), made.template if made else "")
    return spelled | {str(group).removeprefix("${").removesuffix("}")} | set(made.words[:1] if made else ())


def _spellings(name: str, template: str) -> set[str]:
    return {name, f"{template}:{name}"}


def unique_members(members: Iterable[Member]) -> tuple[Member, ...]:
    """Return each machine once."""
    return tuple({(member.template, member.name): member for member in members}.values())


def _names(members: Iterable[Member]) -> tuple[str, ...]:
    return unique(member.name for member in members if member.kind != _UNLAUNCHED)


def _groups(members: Iterable[Member], others: Iterable[Member]) -> tuple[str, ...]:
    """Return the groups of a role as written, those that the other role has not if there are such."""
    foreign = {group for member in others for group in member.groups}
    own = unique(group for member in members for group in member.groups)
    return tuple(str(group) for group in own if group not in foreign) or tuple(map(str, own))

"""Machines of templates: instances, network interfaces, launch templates, auto scaling groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv4Address
from typing import Any

from slurm_cluster.reachability.network import Member, Subnet
from slurm_cluster.reachability.properties import Properties
from slurm_cluster.reachability.stacks import Stack
from slurm_cluster.reachability.template_groups import by_name, group_names
from slurm_cluster.reachability.values import DEFAULTS_OF_VPC, Id, Token, element, unique

INSTANCE = "AWS::EC2::Instance"
INTERFACE = "AWS::EC2::NetworkInterface"
LAUNCH_TEMPLATE = "AWS::EC2::LaunchTemplate"
LAUNCH_CONFIGURATION = "AWS::AutoScaling::LaunchConfiguration"
AUTO_SCALING_GROUP = "AWS::AutoScaling::AutoScalingGroup"

_GROUPS = ("SecurityGroupIds", "GroupSet", "Groups", "SecurityGroups")
"""Properties by which an interface, or what has one, gives its security groups."""
_DAEMONS = ("slurmctld", "slurmd")


@dataclass(frozen=True, kw_only=True)
class _Launch:
    """How a machine is launched, as far as some resource says."""

    groups: tuple[Id, ...] = ()
    subnets: tuple[Id, ...] = ()
    address: IPv4Address | None = None
    tags: Mapping[str, str] = field(default_factory=dict, hash=False)
    words: tuple[str, ...] = ()

    def over(self, other: _Launch) -> _Launch:
        """Return what holds where this was given besides the other."""
        return _Launch(
            groups=self.groups or other.groups,
            subnets=self.subnets or other.subnets,
            address=self.address or other.address,
            tags={**other.tags, **self.tags},
            words=self.words + other.words,
        )


class _Machines:
    """The machines of some stacks; remembers which launch templates and interfaces other resources use."""

    def __init__(self, stacks: list[Stack], subnets: Mapping[Id, Subnet]) -> None:
        self._subnets = subnets
        self._used: set[Id] = set()
        self._interfaces: dict[Id, _Launch] = {}
        self._launches: dict[Id, tuple[Stack, str, str, _Launch]] = {}
        self._names: dict[Id, Id] = {}
        self._stacks = stacks
        self._group_names = group_names(stacks)
        for stack in stacks:
            for logical_id, given in stack.properties(INTERFACE):
                self._interfaces[stack.token(logical_id)] = self._interface(given)
        for stack in stacks:
            for logical_id, given in stack.properties(LAUNCH_TEMPLATE):
                name = given.scalar("LaunchTemplateName")
                self._keep(stack, logical_id, "launch template", name, given.part("LaunchTemplateData"))
            for logical_id, given in stack.properties(LAUNCH_CONFIGURATION):
                name = given.scalar("LaunchConfigurationName")
                self._keep(stack, logical_id, "launch configuration", name, given)

    def members(self) -> Iterator[Member]:
        """Yield them; a launch template or interface only if no other resource here uses it."""
        for stack in self._stacks:
            yield from self._instances(stack)
            yield from self._auto_scaling_groups(stack)
        for token, (stack, logical_id, kind, launch) in self._launches.items():
            if token not in self._used and launch.groups:
                yield self._member(stack, logical_id, kind, launch, many=True)
        for stack in self._stacks:
            for logical_id, _ in stack.resources(INTERFACE):
                token = stack.token(logical_id)
                if token not in self._used:
                    yield self._member(stack, logical_id, "network interface", self._interfaces[token])

    def _instances(self, stack: Stack) -> Iterator[Member]:
        for _, given in stack.properties("AWS::EC2::NetworkInterfaceAttachment"):
            self._use(given.scalar("NetworkInterfaceId"))
        for logical_id, given in stack.properties(INSTANCE):
            launch = self._launch(given)
            for source in self._sources([given.part("LaunchTemplate")]):
                launch = launch.over(source)
            yield self._member(stack, logical_id, "instance", launch)

    def _auto_scaling_groups(self, stack: Stack) -> Iterator[Member]:
        for logical_id, given in stack.properties(AUTO_SCALING_GROUP):
            own = _Launch(subnets=_zones(given), tags=given.tags())
            mixed = given.part("MixedInstancesPolicy").part("LaunchTemplate")
            overrides = [item.part("LaunchTemplateSpecification") for item in mixed.known_parts("Overrides")]
            specifications = [given.part("LaunchTemplate"), mixed.part("LaunchTemplateSpecification"), *overrides]
            sources = [*self._sources(specifications), *self._used_launch(given.scalar("LaunchConfigurationName"))]
            for launch in unique(own.over(source) for source in sources):
                yield self._member(stack, logical_id, "auto scaling group", launch, many=True)

    def _sources(self, specifications: list[Properties]) -> Iterator[_Launch]:
        for specification in specifications:
            for key in ("LaunchTemplateId", "LaunchTemplateName"):
                yield from self._used_launch(specification.scalar(key))

    def _used_launch(self, name: Id | None) -> Iterator[_Launch]:
        if name is None:
            return
        token: Id = self._names.get(name, name)
        if token in self._launches:
            self._used.add(token)
            yield self._launches[token][3]
        else:
            yield _unknown(token)

    def _keep(self, stack: Stack, logical_id: str, kind: str, name: Id | None, given: Properties) -> None:
        token = stack.token(logical_id)
        if name is not None:
            self._names[name] = token
        self._launches[token] = (stack, logical_id, kind, self._launch(given))

    def _use(self, interface: Id | None) -> None:
        if interface is not None:
            self._used.add(interface)

    def _launch(self, given: Properties) -> _Launch:
        """Return what an instance or launch template says of its primary network interface."""
        tagged = given.tags()
        for specification in given.known_parts("TagSpecifications"):
            if specification.text("ResourceType") == "instance":
                tagged |= specification.tags()
        launch = _Launch(tags=tagged, words=tuple(_daemons(given.raw("UserData"))))
        interfaces = given.known_parts("NetworkInterfaces")
        for interface in interfaces:
            self._use(interface.scalar("NetworkInterfaceId"))
        if interfaces:
            primary = min(interfaces, key=_position)
            attached = primary.scalar("NetworkInterfaceId")
            if attached is not None:
                launch = launch.over(self._interfaces.get(attached) or _unknown(attached))
            launch = launch.over(self._interface(primary))
        return launch.over(self._interface(given))

    def _interface(self, given: Properties) -> _Launch:
        found = next((found for name in _GROUPS if (found := given.ids(name))), ())
        groups = tuple(by_name(item, self._group_names) for item in found)
        address = given.text("PrivateIpAddress")
        try:
            fixed = IPv4Address(address) if address is not None else None
        except AddressValueError:
            fixed = None
        return _Launch(groups=groups, subnets=given.ids("SubnetId"), address=fixed, tags=given.tags())

    def _member(self, stack: Stack, logical_id: str, kind: str, launch: _Launch, *, many: bool = False) -> Member:
        return Member(
            name=f"{stack.prefix}{logical_id}",
            kind=kind,
            groups=launch.groups or (self._default_group(launch),),
            subnets=launch.subnets,
            many=many,
            address=launch.address,
            tags=launch.tags,
            words=launch.words,
            template=stack.template,
        )

    def _default_group(self, launch: _Launch) -> Id:
        """Return the group of a machine to which nobody gives one: the default group of its VPC."""
        subnet = self._subnets.get(launch.subnets[0]) if launch.subnets else None
        vpc = subnet.vpc if subnet else None
        if isinstance(vpc, Token) and vpc.made:
            _, stack, logical_id = vpc.key
            name = DEFAULTS_OF_VPC[0]
            return Token(f"{vpc.text}.{name}", ("attribute", stack, logical_id, name), home=vpc.home)
        return Token(f"the default group of VPC {vpc or 'unknown'}", ("default group", vpc))


def members(stacks: list[Stack], subnets: Mapping[Id, Subnet]) -> tuple[Member, ...]:
    """Return the machines that the stacks make or describe."""
    return tuple(_Machines(stacks, subnets).members())


def _unknown(source: Id) -> _Launch:
    return _Launch(groups=(Token(f"the groups of {source}", ("groups of", source)),))


def _zones(given: Properties) -> tuple[Id, ...]:
    """Return the subnets of an auto scaling group; an unknown list may be of more than one."""
    found = given.value("VPCZoneIdentifier")
    if isinstance(found, Token):
        return tuple(element(found, index) for index in (0, 1))
    return given.ids("VPCZoneIdentifier")


def _position(interface: Properties) -> tuple[int, int]:
    """Return what orders interfaces: the first card's device 0 is the one that Slurm's connections use."""
    numbers = [interface.text(name) or "" for name in ("NetworkCardIndex", "DeviceIndex")]
    card, device = (int(number) if number.isdecimal() else 0 for number in numbers)
    return card, device


def _daemons(user_data: Any) -> Iterator[str]:
    """Yield the Slurm daemons that a start script names."""
    texts = list(_texts(user_data))
    for daemon in _DAEMONS:
        if any(daemon in text for text in texts):
            yield daemon


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts(item)

"""Machines of templates: instances, network interfaces, launch templates, auto scaling groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv4Address
from typing import Any

from slurm_cluster.reachability.network import Member, Subnet
from slurm_cluster.reachability.stacks import Stack
from slurm_cluster.reachability.template_values import ids, tags
from slurm_cluster.reachability.values import DEFAULTS_OF_VPC, Id, Token, element, text_of

INSTANCE = "AWS::EC2::Instance"
INTERFACE = "AWS::EC2::NetworkInterface"
LAUNCH_TEMPLATE = "AWS::EC2::LaunchTemplate"
LAUNCH_CONFIGURATION = "AWS::AutoScaling::LaunchConfiguration"
AUTO_SCALING_GROUP = "AWS::AutoScaling::AutoScalingGroup"

_LAUNCH = (
    "NetworkInterfaces",
    "SecurityGroupIds",
    "SecurityGroups",
    "SubnetId",
    "PrivateIpAddress",
    "Tags",
    "TagSpecifications",
)
_DAEMONS = ("slurmctld", "slurmd")


@dataclass(frozen=True, kw_only=True)
class _Launch:
    """How a machine is launched, as far as some resource says."""

    groups: tuple[Id, ...] = ()
    subnets: tuple[Id, ...] = ()
    address: IPv4Address | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
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
        for stack in stacks:
            for logical_id, resource in stack.resources(INTERFACE):
                given = stack.properties(resource, "GroupSet", "SubnetId", "PrivateIpAddress", "Tags")
                self._interfaces[stack.token(logical_id)] = _interface(given)
        for stack in stacks:
            for logical_id, resource in stack.resources(LAUNCH_TEMPLATE):
                self._keep(stack, logical_id, resource, "LaunchTemplateData", "LaunchTemplateName")
            for logical_id, resource in stack.resources(LAUNCH_CONFIGURATION):
                self._keep(stack, logical_id, resource, None, "LaunchConfigurationName")

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
        for _, resource in stack.resources("AWS::EC2::NetworkInterfaceAttachment"):
            attached = stack.properties(resource, "NetworkInterfaceId").get("NetworkInterfaceId")
            if isinstance(attached, (str, Token)):
                self._used.add(attached)
        for logical_id, resource in stack.resources(INSTANCE):
            given = stack.properties(resource, *_LAUNCH, "LaunchTemplate")
            launch = self._launch(given, resource.get("Properties") or {})
            for source in self._sources([given.get("LaunchTemplate")]):
                launch = launch.over(source)
            yield self._member(stack, logical_id, "instance", launch)

    def _auto_scaling_groups(self, stack: Stack) -> Iterator[Member]:
        for logical_id, resource in stack.resources(AUTO_SCALING_GROUP):
            given = stack.properties(
                resource,
                "LaunchTemplate",
                "LaunchConfigurationName",
                "MixedInstancesPolicy",
                "VPCZoneIdentifier",
                "Tags",
            )
            own = _Launch(subnets=_zones(given.get("VPCZoneIdentifier")), tags=tags(given.get("Tags")))
            mixed = _mapping(_mapping(given.get("MixedInstancesPolicy")).get("LaunchTemplate"))
            specifications = [given.get("LaunchTemplate"), mixed.get("LaunchTemplateSpecification")]
            overrides = mixed.get("Overrides")
            if isinstance(overrides, list):
                specifications += [_mapping(override).get("LaunchTemplateSpecification") for override in overrides]
            sources = list(self._sources(specifications))
            if "LaunchConfigurationName" in given:
                sources += self._used_launch(given["LaunchConfigurationName"])
            for launch in dict.fromkeys((own.over(source).groups, own.over(source).subnets) for source in sources):
                source = next(item for item in sources if (own.over(item).groups, own.over(item).subnets) == launch)
                yield self._member(stack, logical_id, "auto scaling group", own.over(source), many=True)

    def _sources(self, specifications: list[Any]) -> Iterator[_Launch]:
        for specification in specifications:
            named = _mapping(specification)
            for key in ("LaunchTemplateId", "LaunchTemplateName"):
                if key in named:
                    yield from self._used_launch(named[key])

    def _used_launch(self, name: Any) -> list[_Launch]:
        token: Id = self._names.get(name, name)
        if token not in self._launches:
            return [_Launch(groups=(Token(f"the groups of {name}", ("groups of", token)),))]
        self._used.add(token)
        return [self._launches[token][3]]

    def _keep(self, stack: Stack, logical_id: str, resource: Mapping[str, Any], inner: str | None, name: str) -> None:
        token = stack.token(logical_id)
        raw = resource.get("Properties") or {}
        named = stack.properties(resource, name).get(name)
        if isinstance(named, (str, Token)):
            self._names[named] = token
        if inner:
            raw = _mapping(raw.get(inner))
        given = stack.properties({"Properties": raw}, *_LAUNCH)
        kind = "launch template" if inner else "launch configuration"
        self._launches[token] = (stack, logical_id, kind, self._launch(given, raw))

    def _launch(self, given: Mapping[str, Any], raw: Mapping[str, Any]) -> _Launch:
        """Return what an instance or launch template says of its primary network interface."""
        tagged = tags(given.get("Tags"))
        specifications = given.get("TagSpecifications")
        for specification in specifications if isinstance(specifications, list) else []:
            if _mapping(specification).get("ResourceType") == "instance":
                tagged |= tags(specification.get("Tags"))
        launch = _Launch(tags=tagged, words=tuple(_daemons(raw.get("UserData"))))
        interfaces = [item for item in _list(given.get("NetworkInterfaces")) if isinstance(item, Mapping)]
        for interface in interfaces:
            attached = interface.get("NetworkInterfaceId")
            if isinstance(attached, (str, Token)):
                self._used.add(attached)
        if interfaces:
            primary = min(interfaces, key=_position)
            attached = primary.get("NetworkInterfaceId")
            if attached is not None:
                unknown = _Launch(groups=(Token(f"the groups of {attached}", ("groups of", attached)),))
                launch = launch.over(self._interfaces.get(attached, unknown))
            launch = launch.over(_interface(primary))
        return launch.over(_interface(given))

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


def _interface(given: Mapping[str, Any]) -> _Launch:
    groups = next(
        (given[name] for name in ("SecurityGroupIds", "GroupSet", "Groups", "SecurityGroups") if name in given), None
    )
    address = given.get("PrivateIpAddress")
    try:
        fixed = IPv4Address(address) if isinstance(address, str) else None
    except AddressValueError:
        fixed = None
    return _Launch(groups=ids(groups), subnets=ids(given.get("SubnetId")), address=fixed, tags=tags(given.get("Tags")))


def _zones(value: Any) -> tuple[Id, ...]:
    """Return the subnets of an auto scaling group; an unknown list may be of more than one."""
    if isinstance(value, Token):
        return tuple(element(value, index) for index in (0, 1))
    return ids(value)


def _position(interface: Mapping[str, Any]) -> tuple[int, int]:
    """Return what orders interfaces: the first card's device 0 is the one that Slurm's connections use."""
    numbers = [text_of(interface.get(name, 0)) for name in ("NetworkCardIndex", "DeviceIndex")]
    card, device = (int(number) if number.isdigit() else 0 for number in numbers)
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


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []

"""Random clouds for the packet oracle, and the CloudFormation templates that make them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from slurm_cluster.model.flows import PortRange, SlurmPorts
from tests.unit.packet_oracle import Cloud, Entry, Group, Host, Rule, Subnet

PORTS = SlurmPorts(slurmctld=6, slurmd=7, srun=PortRange(4, 9))
"""Ports so low and close that random rules meet them."""

_SUBNETS = ("10.0.0.0/28", "10.0.0.16/28", "10.0.0.32/28")
_CIDRS = ("0.0.0.0/0", "10.0.0.0/24", *_SUBNETS, "10.0.0.0/27", "10.0.0.4/31", "192.168.0.0/16", "::/0")
_EDGES = (0, 3, 4, 5, 6, 7, 8, 9, 10, 1024, 65535)
_ACL_EDGES = (*_EDGES, 32768, 40000, 60999)
_EXTERNAL = "sg-00000000"

Draw = Callable[[st.SearchStrategy[Any]], Any]


@st.composite
def clouds(draw: Draw) -> Cloud:
    """Return a cloud of a head and two or three workers, often with all that they need and something taken away."""
    names = [f"Group{number}" for number in range(draw(st.integers(1, 4)))]
    subnets = tuple(
        Subnet(f"Subnet{number}", cidr, draw(st.none() | st.none() | _entries()))
        for number, cidr in enumerate(_SUBNETS[: draw(st.integers(1, 3))])
    )
    hosts = tuple(
        _host(draw, "head" if number == 0 else "worker", number, names, subnets)
        for number in range(draw(st.integers(3, 4)))
    )
    peers = st.sampled_from(names) | _cidrs(hosts) | st.lists(_cidrs(hosts), min_size=1, max_size=2).map(tuple)
    wide = draw(st.booleans())
    groups = tuple(
        Group(name, (*(_generous(draw, names) if wide else ()), *draw(st.lists(_rules(peers), max_size=4))))
        for name in names
    )
    return Cloud(groups, subnets, hosts)


def _generous(draw: Draw, names: list[str]) -> list[Rule]:
    """Return rules that let everything in from each group but for a port or a group here and there."""
    found = []
    for name in names:
        for first, last in draw(
            st.sampled_from((((0, 65535),), ((0, 6), (7, 65535)), ((4, 65535),), ((0, 5), (7, 65535))))
        ):
            if draw(st.integers(0, 9)):
                found.append(Rule(False, "tcp", first, last, name))
    if draw(st.booleans()):
        found.append(Rule(True, "-1", 0, 65535, draw(st.sampled_from(("0.0.0.0/0", "10.0.0.0/24")))))
    return found


def _host(draw: Draw, role: str, number: int, names: list[str], subnets: tuple[Subnet, ...]) -> Host:
    subnet = draw(st.sampled_from(subnets))
    address = subnet.cidr.split("/")[0].rsplit(".", 1)
    groups = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
    return Host(
        f"{role.capitalize()}{number}",
        role,
        f"{address[0]}.{int(address[1]) + 4 + number}",
        subnet.name,
        tuple(groups),
    )


def _cidrs(hosts: tuple[Host, ...]) -> st.SearchStrategy[str]:
    return st.sampled_from([*_CIDRS, *(f"{host.address}/32" for host in hosts)])


@st.composite
def _rules(draw: Draw, peers: st.SearchStrategy[Any]) -> Rule:
    protocol = draw(st.sampled_from(("tcp", "tcp", "tcp", "-1", "-1", "udp")))
    first, last = (0, 65535) if protocol == "-1" else _span(draw, _EDGES)
    return Rule(draw(st.sampled_from((False, False, False, True))), protocol, first, last, draw(peers))


@st.composite
def _entries(draw: Draw) -> tuple[Entry, ...]:
    found = []
    for number in draw(st.lists(st.integers(1, 9), max_size=5, unique=True)):
        protocol = draw(st.sampled_from(("tcp", "-1", "-1", "udp")))
        first, last = (0, 65535) if protocol == "-1" else _span(draw, _ACL_EDGES)
        egress, allow = draw(st.booleans()), draw(st.sampled_from((True, True, False)))
        found.append(Entry(number, allow, egress, protocol, first, last, draw(st.sampled_from(_CIDRS))))
    if draw(st.integers(0, 3)):
        found += [Entry(99, True, egress, "-1", 0, 65535, "0.0.0.0/0") for egress in (False, True)]
    return tuple(found)


def _span(draw: Draw, edges: tuple[int, ...]) -> tuple[int, int]:
    if draw(st.booleans()):
        return 0, 65535
    first, last = sorted(draw(st.tuples(st.sampled_from(edges), st.sampled_from(edges))))
    return first, last


@dataclass
class Writer:
    """Writes a cloud as a template, in one of the many ways there are.

    Args:
        cloud: the cloud.
        choose: decides each yes or no.
        hide: decides what the template does not say.
    """

    cloud: Cloud
    choose: Callable[[], bool]
    hide: Callable[[], bool]
    resources: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)
    external: dict[str, str] = field(default_factory=dict)

    def template(self) -> dict[str, Any]:
        """Return it."""
        self.resources["Vpc"] = _resource("VPC", CidrBlock="10.0.0.0/24")
        for number, group in enumerate(self.cloud.groups):
            if self.hide():
                self.external[group.name] = f"{_EXTERNAL}{number}"
        for subnet in self.cloud.subnets:
            self._subnet(subnet)
        for group in self.cloud.groups:
            self._group(group)
        for host in self.cloud.hosts:
            self._host(host)
        return {
            "Parameters": self.parameters,
            "Conditions": {name: {"Fn::Equals": [{"Ref": name}, "yes"]} for name in self.parameters if name[0] == "C"},
            "Resources": self.resources,
        }

    def selectors(self, role: str) -> list[str]:
        """Return the names of a role's machines."""
        return [host.name for host in self.cloud.hosts if host.role == role]

    def _subnet(self, subnet: Subnet) -> None:
        self.resources[subnet.name] = _resource("Subnet", VpcId={"Ref": "Vpc"}, CidrBlock=subnet.cidr)
        if subnet.entries is None:
            return
        acl = f"{subnet.name}Acl"
        self.resources[acl] = _resource("NetworkAcl", VpcId={"Ref": "Vpc"})
        self.resources[f"{acl}Here"] = _resource(
            "SubnetNetworkAclAssociation", SubnetId={"Ref": subnet.name}, NetworkAclId={"Ref": acl}
        )
        for number, entry in enumerate(subnet.entries):
            self.resources[f"{acl}Entry{number}"] = _resource(
                "NetworkAclEntry",
                NetworkAclId={"Fn::GetAtt": [acl, "Id"]} if self.choose() else {"Ref": acl},
                RuleNumber=str(entry.number) if self.choose() else entry.number,
                RuleAction="allow" if entry.allow else "deny",
                Protocol={"tcp": 6, "udp": "17", "-1": -1}[entry.protocol],
                **({"Egress": entry.egress} if entry.egress or self.choose() else {}),
                **({"Ipv6CidrBlock": entry.cidr} if ":" in entry.cidr else {"CidrBlock": entry.cidr}),
                **({} if entry.protocol == "-1" else {"PortRange": {"From": entry.first, "To": entry.last}}),
            )

    def _group(self, group: Group) -> None:
        inline: dict[str, list[Any]] = {}
        external = group.name in self.external
        for number, rule in enumerate(group.rules):
            way = "Egress" if rule.egress else "Ingress"
            properties = self._rule(rule, f"{group.name}{number}")
            # a group cannot name itself inline
            if (self.choose() or (external and self.choose())) and rule.peer != group.name:
                inline.setdefault(f"SecurityGroup{way}", []).append(properties)
                continue
            item = _resource(f"SecurityGroup{way}", GroupId=self._group_id(group.name), **properties)
            self.resources[f"{group.name}Rule{number}"] = item
        if not external:
            self.resources[group.name] = _resource(
                "SecurityGroup", GroupDescription=group.name, VpcId={"Ref": "Vpc"}, **inline
            )

    def _rule(self, rule: Rule, name: str) -> dict[str, Any]:
        protocol: Any = {"tcp": "6", "udp": 17, "-1": -1}[rule.protocol] if self.choose() else rule.protocol
        properties: dict[str, Any] = {"IpProtocol": protocol}
        if rule.protocol != "-1" or self.choose():
            properties |= {"FromPort": self._port(rule.first, f"{name}First"), "ToPort": rule.last}
        side = "Destination" if rule.egress else "Source"
        if isinstance(rule.peer, tuple):
            self.resources[f"{name}List"] = _resource(
                "PrefixList",
                PrefixListName=name,
                AddressFamily="IPv4",
                Entries=[{"Cidr": cidr} for cidr in rule.peer],
            )
            listed: Any = {"Ref": f"{name}List"}
            if self.hide():
                del self.resources[f"{name}List"]
                listed = f"pl-{name}"
            return {**properties, f"{side}PrefixListId": listed}
        if "/" not in rule.peer:
            return {**properties, f"{side}SecurityGroupId": self._group_id(rule.peer)}
        return {**properties, "CidrIpv6" if ":" in rule.peer else "CidrIp": self._hidden(rule.peer, f"{name}Cidr")}

    def _port(self, port: int, name: str) -> Any:
        written = str(port) if self.choose() else port
        if self.choose():
            self.parameters[f"P{name}"] = {"Type": "Number", "Default": written}
            return {"Ref": f"P{name}"}
        return self._hidden(written, name)

    def _hidden(self, value: Any, name: str) -> Any:
        if not self.hide():
            return value
        self.parameters[f"P{name}"] = {"Type": "String"}
        return {"Ref": f"P{name}"}

    def _group_id(self, name: str) -> Any:
        if name in self.external:
            return self.external[name]
        return {"Ref": name} if self.choose() else {"Fn::GetAtt": [name, "GroupId"]}

    def _host(self, host: Host) -> None:
        groups = [self._group_id(name) for name in host.groups]
        network: dict[str, Any] = {"SubnetId": {"Ref": host.subnet}}
        if not self.hide():
            network["PrivateIpAddress"] = host.address
        if self.choose():
            network = {"NetworkInterfaces": [{**network, "DeviceIndex": "0", "GroupSet": groups}]}
        elif self.choose():
            launch = f"{host.name}Launch"
            self.resources[launch] = _resource("LaunchTemplate", LaunchTemplateData={"SecurityGroupIds": groups})
            network["LaunchTemplate"] = {"LaunchTemplateId": {"Ref": launch}, "Version": "1"}
        else:
            network["SecurityGroupIds"] = groups
        self.resources[host.name] = _resource("Instance", **network)


def conditional(template: dict[str, Any], present: dict[str, bool]) -> dict[str, Any]:
    """Return the template with rules that exist only under a condition of which nothing is known."""
    resources = dict(template["Resources"])
    parameters = dict(template["Parameters"])
    for logical_id in present:
        resources[logical_id] = {**resources[logical_id], "Condition": f"C{logical_id}"}
        parameters[f"C{logical_id}"] = {"Type": "String", "AllowedValues": ["yes", "no"]}
    conditions = {f"C{name}": {"Fn::Equals": [{"Ref": f"C{name}"}, "yes"]} for name in present}
    return {**template, "Resources": resources, "Parameters": parameters, "Conditions": conditions}


def without(cloud: Cloud, absent: set[tuple[str, int]]) -> Cloud:
    """Return the cloud without some rules, by group and number."""
    groups = tuple(
        replace(group, rules=tuple(rule for at, rule in enumerate(group.rules) if (group.name, at) not in absent))
        for group in cloud.groups
    )
    return replace(cloud, groups=groups)


def _resource(kind: str, **properties: Any) -> dict[str, Any]:
    return {"Type": f"AWS::EC2::{kind}", "Properties": properties}

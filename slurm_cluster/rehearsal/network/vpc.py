"""The VPC's router: a network namespace that joins the nodes' namespaces and enforces the security groups.

Each node has a namespace of its own with its private address on ``eth0``; the other end of that veth pair is in the
router, which has a route for the one address only. All traffic, also inside a subnet, is routed and so filtered. No
node has a route to this machine's own network: what a node may reach outside the VPC listens in the router.
"""

from __future__ import annotations

import ipaddress
import threading
from dataclasses import dataclass

from slurm_cluster.rehearsal.network import namespace, ruleset
from slurm_cluster.rehearsal.network.addresses import (
    METADATA,
    OUTSIDE,
    RESOLVER,
    gateway,
    mac_address,
    router_interface,
    subnet_resolver,
)
from slurm_cluster.rehearsal.network.groups import Closure, GroupSnapshot, Refused
from slurm_cluster.rehearsal.paths import name

_MTU = 9001  # EC2 user guide, "Network maximum transmission unit"

_ROUTER_SYSCTLS = {
    "ipv4/ip_forward": 1,
    "ipv4/conf/default/proxy_arp": 1,
    "ipv6/conf/default/disable_ipv6": 1,
    # A stray packet of a connection that is gone is invalid then, not an attempt to open one.
    "netfilter/nf_conntrack_tcp_loose": 0,
}


@dataclass(frozen=True, kw_only=True)
class _Attached:
    netns: str
    private_ip: str


class VpcNetwork:
    """The network of one session, made at once; ``destroy`` removes it. All methods may be called from any thread.

    Args:
        session: session id.

    Raises:
        RuntimeError: the session has a network already, or this process may not make one.
    """

    def __init__(self, session: str) -> None:
        self.router = name(session, "vpc")
        """Namespace of the router, where the services of the VPC listen."""
        self._session = session
        self._lock = threading.RLock()
        self._attached: dict[str, _Attached] = {}
        self._subnets: set[str] = set()
        self._snapshot = GroupSnapshot(members={})
        self._closures: tuple[Closure, ...] = ()
        namespace.create(self.router)
        try:
            self._equip_router()
        except BaseException:
            namespace.delete(self.router)
            raise

    def attach(self, instance_id: str, private_ip: str, subnet_cidr: str) -> str:
        """Give an instance its network and return the name of its namespace.

        Raises:
            ValueError: the address is not in the subnet, or another instance has it.
            RuntimeError: the namespace exists already.
        """
        subnet = ipaddress.IPv4Network(subnet_cidr)
        if ipaddress.IPv4Address(private_ip) not in subnet:
            raise ValueError(f"{private_ip} of {instance_id} is not in the subnet {subnet_cidr}")
        with self._lock:
            for other, attached in self._attached.items():
                if private_ip == attached.private_ip or instance_id == other:
                    raise ValueError(f"{instance_id} cannot have {private_ip}: {other} has {attached.private_ip}")
            netns = name(self._session, instance_id)
            self._serve_subnet(subnet_cidr)
            namespace.create(netns)
            try:
                self._join(netns, private_ip, subnet)
            except BaseException:
                namespace.delete(netns)
                raise
            self._attached[instance_id] = _Attached(netns=netns, private_ip=private_ip)
            return netns

    def detach(self, instance_id: str) -> None:
        """Take an instance's network away; nothing happens if it has none."""
        with self._lock:
            attached = self._attached.pop(instance_id, None)
            if attached is None:
                return
            # The pair goes at once this way; its namespace lives on while a process is in it.
            peer = router_interface(self._session, attached.private_ip)
            namespace.run(["ip", "-netns", self.router, "link", "delete", peer])
            namespace.delete(attached.netns)

    def apply(self, snapshot: GroupSnapshot) -> None:
        """Enforce ``snapshot`` from now on. Connections that are open stay open, as security groups track them."""
        with self._lock:
            if snapshot != self._snapshot:
                self._load(snapshot, self._closures)

    def close(self, flow: Closure) -> None:
        """Drop new connections of ``flow``, besides those that are closed already, whatever the groups allow."""
        with self._lock:
            self._load(self._snapshot, (*self._closures, flow))

    def reopen(self) -> None:
        """Leave all flows to the security groups again."""
        with self._lock:
            self._load(self._snapshot, ())

    def refused(self) -> list[Refused]:
        """Return what was dropped since the network was made, in order of addresses."""
        return ruleset.parse_refused(
            namespace.run(["nft", "--json", "list", "table", "inet", "guard"], netns=self.router)
        )

    def destroy(self) -> None:
        """Remove all namespaces of the session; nothing happens if there are none.

        Sockets and processes in them keep their kernel objects alive: stop services and machines first.
        """
        with self._lock:
            for netns in namespace.names(name(self._session)):
                namespace.delete(netns)
            self._attached.clear()

    def _load(self, snapshot: GroupSnapshot, closures: tuple[Closure, ...]) -> None:
        self._nft(ruleset.render(snapshot, closures))
        self._snapshot, self._closures = snapshot, closures

    def _equip_router(self) -> None:
        services = dict.fromkeys((METADATA, RESOLVER, *(item.address for item in OUTSIDE)))
        self._ip(self.router, *(f"address add {ip}/32 dev lo" for ip in services))
        # Without this route other destinations were "unreachable" at once; on AWS such packets are lost.
        self._ip(self.router, "route add blackhole default")
        self._nft(ruleset.GUARD)
        self._load(self._snapshot, ())
        # The kernel has nf_conntrack's settings no sooner than rules that made it load the module.
        namespace.set_sysctl(self.router, _ROUTER_SYSCTLS)

    def _serve_subnet(self, subnet_cidr: str) -> None:
        if subnet_cidr in self._subnets:
            return
        resolver = subnet_resolver(subnet_cidr)
        self._ip(self.router, *(f"address replace {ip}/32 dev lo" for ip in (gateway(subnet_cidr), resolver)))
        self._nft(ruleset.add_resolver(resolver))
        self._subnets.add(subnet_cidr)

    def _join(self, netns: str, private_ip: str, subnet: ipaddress.IPv4Network) -> None:
        peer = router_interface(self._session, private_ip)
        mac = mac_address(private_ip)
        self._ip(
            self.router,
            f"link add {peer} mtu {_MTU} type veth peer name eth0 mtu {_MTU} address {mac} netns {netns}",
            f"link set {peer} up",
            f"route add {private_ip}/32 dev {peer}",
            f"neighbour add {private_ip} lladdr {mac} dev {peer} nud permanent",
        )
        # The router answers for the other nodes of the subnet at once; Linux would wait up to 0.8 seconds.
        namespace.set_sysctl(self.router, {f"ipv4/neigh/{peer}/proxy_delay": 0})
        self._ip(
            netns,
            f"address add {private_ip}/{subnet.prefixlen} dev eth0",
            "link set eth0 up",
            f"route add default via {gateway(str(subnet))}",
        )

    def _ip(self, netns: str, *commands: str) -> None:
        namespace.run(["ip", "-netns", netns, "-batch", "-"], text="\n".join(commands) + "\n")

    def _nft(self, text: str) -> None:
        namespace.run(["nft", "-f", "-"], netns=self.router, text=text)

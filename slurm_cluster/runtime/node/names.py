"""Names of the cluster's machines, kept current while the node runs.

A worker knows itself and the head, the nodes of its jobs come from the prolog. The head knows every worker by node
name and by the host name of its machine: slurmctld calls an srun on a worker by the latter.
"""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Callable

from slurm_cluster.model.flows import Role
from slurm_cluster.model.spec import ClusterSpec
from slurm_cluster.runtime.node import dns, hosts, units
from slurm_cluster.runtime.node.commands import CommandError, Runner
from slurm_cluster.runtime.node.errors import NodeError
from slurm_cluster.runtime.node.hosts import Entries
from slurm_cluster.runtime.node.node_table import parse

HEAD_SECONDS = 2.0
WORKER_SECONDS = 15.0


def own_names() -> tuple[str, ...]:
    """Return the names this machine calls itself: the whole one and the part before the first dot."""
    name = socket.gethostname()
    return tuple(dict.fromkeys((name, name.split(".")[0])))


def node_table(text: str) -> Entries:
    """Return node and host names by address from ``scontrol --oneliner show nodes``.

    A node that has not registered has no address yet: its own name stands in that place.
    """
    entries: Entries = {}
    for name, node in parse(text).items():
        if not _is_address(node.address):
            continue
        host = node.host or name
        names = dict.fromkeys((host, host.split(".")[0], name))
        entries[node.address] = (*entries.get(node.address, ()), *names)
    return entries


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def head_entries(spec: ClusterSpec, address: str) -> Entries:
    """Return what the head calls itself."""
    return {address: (*own_names(), spec.head_host)}


def worker_entries(spec: ClusterSpec, node_name: str, address: str, head_address: str) -> Entries:
    """Return what a worker calls itself and the head."""
    return {address: (*own_names(), node_name), head_address: (spec.head_host,)}


def wait_for_head(
    spec: ClusterSpec,
    *,
    seconds: float = 1200,
    resolve: Callable[[str], str | None] = dns.resolve,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> str:
    """Return the head's address, waiting for its record.

    Raises:
        NodeError: no server knows the name.
    """
    start = clock()
    while (address := resolve(spec.head_host)) is None:
        if clock() - start > seconds:
            raise NodeError(
                f"no DNS server knows {spec.head_host}: asked {', '.join(dns.servers())}; "
                "the VPC needs DNS support, and the cluster's private zone must be associated with it"
            )
        sleep(5)
    return address


def ensure(
    role: Role, spec: ClusterSpec, node_name: str | None, address: str, *, head_address: str | None = None
) -> bool:
    """Write what is known at boot; return whether /etc/hosts changed.

    Entries that jobs or the node table brought stay until the service that keeps them sees otherwise.
    """
    if role is Role.HEAD:
        known = head_entries(spec, address)
    else:
        if node_name is None or head_address is None:
            raise ValueError("a worker has a node name and knows its head's address")
        known = worker_entries(spec, node_name, address, head_address)
    return hosts.update(lambda entries: hosts.merge(entries, known))


def serve_head(run: Runner, spec: ClusterSpec, address: str, *, sleep: Callable[[float], None] = time.sleep) -> None:
    """Keep every worker's names on the head; does not return."""
    known = head_entries(spec, address)
    while True:
        refresh_head(run, known)
        sleep(HEAD_SECONDS)


def refresh_head(run: Runner, known: Entries) -> bool:
    """Make the block hold the head and slurmctld's node table; return whether it changed.

    While slurmctld does not answer the block stays as it is.
    """
    try:
        table = node_table(run(["scontrol", "--oneliner", "show", "nodes"], timeout=30).stdout)
    except CommandError:
        return False
    return hosts.update(lambda _: hosts.merge(table, known))


def serve_worker(
    run: Runner, spec: ClusterSpec, node_name: str, address: str, *, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Follow the head to a new address; does not return."""
    while True:
        head_address = dns.resolve(spec.head_host)
        if head_address is not None:
            follow_head(run, spec, node_name, address, head_address)
        sleep(WORKER_SECONDS)


def follow_head(run: Runner, spec: ClusterSpec, node_name: str, address: str, head_address: str) -> bool:
    """Write the head's address; if it is another than before, have slurmd connect there. Return whether it was.

    Jobs outlive a restart of slurmd: its unit ends the daemon alone.
    """
    known = worker_entries(spec, node_name, address, head_address)
    before: list[str] = []

    def change(entries: Entries) -> Entries:
        before.extend(old for old, names in entries.items() if spec.head_host in names)
        return hosts.merge(entries, known)

    hosts.update(change)
    moved = bool(before) and before != [head_address]
    if moved and units.is_active(run, "slurmd.service"):
        run(["systemctl", "restart", "--no-block", "slurmd.service"])
    return moved

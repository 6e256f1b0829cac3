"""Addresses and names in the rehearsed VPC, and what they are on AWS."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from slurm_cluster.rehearsal.paths import name
from slurm_cluster.runtime.node.ssm_agent import package_url

METADATA = "169.254.169.254"
"""Instance metadata service (EC2 user guide, "Access instance metadata")."""

RESOLVER = "169.254.169.253"
"""The VPC's resolver, also reachable at base + 2 (VPC user guide, "Amazon DNS server")."""

API = "192.0.2.1"
"""Where the AWS API answers. From TEST-NET-1, so in no VPC: to security groups it is an address on the internet."""

API_HOST = "aws"
API_PORT = 4566

PACKAGES = "192.0.2.2"
"""Where the apt cache answers, as the proxy that a stock image names."""

PACKAGES_PORT = 3142

AGENT_BUCKET = "192.0.2.3"
"""Where the bucket answers over TLS from which nodes of a stock image install the SSM agent."""

OWN_DNS = "192.0.2.53"
"""A DNS server that the owner of a VPC runs: it knows public names, and nothing of private hosted zones."""


@dataclass(frozen=True, kw_only=True)
class Outside:
    """A service outside the VPC that nodes reach at a port of the rehearsal's, and the port it has on AWS.

    Egress rules are held against ``aws_port``: a group that does not allow HTTPS out reaches no AWS API.
    """

    address: str
    protocol: Literal["tcp", "udp"]
    port: int
    aws_port: int


OUTSIDE = (
    Outside(address=API, protocol="tcp", port=API_PORT, aws_port=443),
    Outside(address=PACKAGES, protocol="tcp", port=PACKAGES_PORT, aws_port=80),
    Outside(address=AGENT_BUCKET, protocol="tcp", port=443, aws_port=443),
    Outside(address=OWN_DNS, protocol="udp", port=53, aws_port=53),
    Outside(address=OWN_DNS, protocol="tcp", port=53, aws_port=53),
)


def gateway(subnet_cidr: str) -> str:
    """Return the address of the VPC's router in a subnet: base + 1."""
    return str(ipaddress.IPv4Network(subnet_cidr)[1])


def subnet_resolver(subnet_cidr: str) -> str:
    """Return the address that AWS reserves for DNS in a subnet: base + 2."""
    return str(ipaddress.IPv4Network(subnet_cidr)[2])


def mac_address(private_ip: str) -> str:
    """Return the MAC address of the interface that has ``private_ip``: locally administered, as EC2's are."""
    return ":".join(f"{byte:02x}" for byte in (0x0A, 0xFF, *ipaddress.IPv4Address(private_ip).packed))


def router_interface(session: str, private_ip: str) -> str:
    """Return the router's end of a node's veth pair: 15 characters, the most that Linux allows."""
    return name(session, ipaddress.IPv4Address(private_ip).packed.hex())


def agent_bucket_host(region: str) -> str:
    """Return the host name from which nodes of a Region install the SSM agent."""
    return str(urlsplit(package_url(region, "amazonaws.com", "amd64")).hostname)


def internal_domain(region: str) -> str:
    """Return the domain of private DNS names (VPC user guide, "DNS attributes for your VPC")."""
    return "ec2.internal" if region == "us-east-1" else f"{region}.compute.internal"


def private_dns_name(private_ip: str, region: str) -> str:
    """Return the IP-based private DNS name of an instance, which is also its host name."""
    return f"ip-{private_ip.replace('.', '-')}.{internal_domain(region)}"


def resolv_conf(subnet_cidr: str, region: str, *, own_dns: bool = False) -> str:
    """Return the /etc/resolv.conf that DHCP gives to a node.

    Args:
        subnet_cidr: the node's subnet. On AWS the resolver's address is base + 2 of the whole VPC; here it is that of
            the subnet, which is reserved for the same purpose.
        region: the node's Region.
        own_dns: whether the VPC's DHCP options name a DNS server of its owner's instead of the VPC's resolver.
    """
    if own_dns:
        return f"search corp.example\nnameserver {OWN_DNS}\n"
    return f"search {internal_domain(region)}\nnameserver {subnet_resolver(subnet_cidr)}\n"

"""DNS answers of the VPC's resolver and of a DNS server that knows no private names."""

from __future__ import annotations

from collections.abc import Sequence

import dns.flags
import dns.message
import dns.opcode
import dns.rcode
import dns.reversename
import pytest

from slurm_cluster.rehearsal.network.addresses import API, private_dns_name, resolv_conf
from slurm_cluster.rehearsal.network.dns import Resolver

ZONE = {"head.x.slurm.internal": ["10.0.0.10"], "two.x.slurm.internal": ["10.0.0.11", "10.0.0.12"]}


def ask(name: str, kind: str = "A", *, private: bool = True, region: str = "us-east-1") -> dns.message.Message:
    query = dns.message.make_query(name, kind)
    wire = Resolver(region, lambda key: ZONE.get(key, ())).answer(query.to_wire(), private=private)
    assert wire is not None
    answer = dns.message.from_wire(wire)
    assert query.is_response(answer)
    assert answer.flags & dns.flags.RA
    return answer


def values(answer: dns.message.Message) -> list[str]:
    assert answer.rcode() == dns.rcode.NOERROR
    return [item.to_text() for rrset in answer.answer for item in rrset]


@pytest.mark.parametrize(
    ("name", "addresses"),
    [
        ("head.x.slurm.internal", ["10.0.0.10"]),
        ("HEAD.X.slurm.internal.", ["10.0.0.10"]),
        ("two.x.slurm.internal", ["10.0.0.11", "10.0.0.12"]),
        ("ip-10-0-0-5.ec2.internal", ["10.0.0.5"]),
        ("aws", [API]),
        ("assets.bucket.aws", [API]),
    ],
)
def test_addresses(name: str, addresses: list[str]) -> None:
    assert sorted(values(ask(name))) == addresses
    assert values(ask(name, "AAAA")) == []


@pytest.mark.parametrize(
    "name",
    [
        "x.slurm.internal",
        "ip-10-0-0-256.ec2.internal",
        "ip-10-0-0-5.eu-west-1.compute.internal",
        "aws.ec2.internal",
        "notaws",
        "deb.debian.org",
    ],
)
def test_names_that_do_not_exist(name: str) -> None:
    assert ask(name).rcode() == dns.rcode.NXDOMAIN


def test_domain_follows_the_region() -> None:
    assert private_dns_name("10.0.0.5", "eu-west-1") == "ip-10-0-0-5.eu-west-1.compute.internal"
    assert values(ask(private_dns_name("10.0.0.5", "eu-west-1"), region="eu-west-1")) == ["10.0.0.5"]


def test_pointers() -> None:
    pointer = dns.reversename.from_address("10.0.0.5").to_text()
    assert values(ask(pointer, "PTR")) == ["ip-10-0-0-5.ec2.internal."]
    assert values(ask(pointer, "A")) == []
    assert ask("8.8.8.8.in-addr.arpa", "PTR").rcode() == dns.rcode.NXDOMAIN
    assert ask("10.in-addr.arpa", "PTR").rcode() == dns.rcode.NXDOMAIN
    assert ask(pointer, "PTR", private=False).rcode() == dns.rcode.NXDOMAIN


def test_own_server_knows_public_names_only() -> None:
    assert values(ask("aws", private=False)) == [API]
    for name in ("head.x.slurm.internal", "ip-10-0-0-5.ec2.internal"):
        assert ask(name, private=False).rcode() == dns.rcode.NXDOMAIN


def test_failed_look_up_is_answered() -> None:
    def fail(name: str) -> Sequence[str]:
        raise ConnectionError(name)

    wire = Resolver("us-east-1", fail).answer(dns.message.make_query("head.x", "A").to_wire(), private=True)
    assert wire is not None
    assert dns.message.from_wire(wire).rcode() == dns.rcode.SERVFAIL


def test_other_messages() -> None:
    resolver = Resolver("us-east-1", lambda _: ())
    assert resolver.answer(b"not DNS", private=True) is None
    query = dns.message.make_query("aws", "A")
    response = dns.message.make_response(query)
    assert resolver.answer(response.to_wire(), private=True) is None
    query.set_opcode(dns.opcode.STATUS)
    wire = resolver.answer(query.to_wire(), private=True)
    assert wire is not None
    assert dns.message.from_wire(wire).rcode() == dns.rcode.NOTIMP


def test_resolv_conf() -> None:
    assert resolv_conf("10.0.1.0/24", "us-east-1") == "search ec2.internal\nnameserver 10.0.1.2\n"
    assert resolv_conf("10.0.1.0/24", "us-east-1", own_dns=True) == "search corp.example\nnameserver 192.0.2.53\n"

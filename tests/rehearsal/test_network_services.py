"""What nodes reach in the router: instance metadata, DNS and the AWS API, each as the caller and the rules allow."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import dns.message
import dns.query
import dns.rcode
import pytest
from botocore.utils import InstanceMetadataFetcher

from slurm_cluster.rehearsal.network import namespace
from slurm_cluster.rehearsal.network.addresses import API, API_PORT, OWN_DNS, RESOLVER
from slurm_cluster.rehearsal.network.dns import DnsService
from slurm_cluster.rehearsal.network.groups import GroupRule, GroupSnapshot, Reason, SecurityGroup
from slurm_cluster.rehearsal.network.instance_metadata import InstanceMetadata, InstanceProfile, RoleCredentials
from slurm_cluster.rehearsal.network.metadata import MetadataService
from slurm_cluster.rehearsal.network.relay import Relay
from slurm_cluster.rehearsal.network.vpc import VpcNetwork
from tests.rehearsal.network_probes import ANYWHERE, OTHER_SUBNET, SUBNET, connect, is_dropped, network, open_to_all

pytestmark = pytest.mark.rehearsal

FIRST, SECOND = "10.0.0.11", "10.0.1.12"


def instance(ip: str, subnet: str) -> InstanceMetadata:
    suffix = ip.rpartition(".")[2]
    return InstanceMetadata(
        instance_id=f"i-0{suffix}",
        image_id="ami-01",
        instance_type="c7i.large",
        architecture="x86_64",
        private_ip=ip,
        region="eu-west-1",
        availability_zone="eu-west-1a",
        account_id="000000000000",
        reservation_id="r-01",
        ami_launch_index=0,
        vpc_id="vpc-01",
        vpc_cidr="10.0.0.0/16",
        subnet_id="subnet-01",
        subnet_cidr=subnet,
        interface_id=f"eni-0{suffix}",
        security_groups={"sg-01": "workers"},
        pending_time=datetime(2026, 1, 1, tzinfo=UTC),
        tags={"slurm-cluster:node": f"cpu-static-{suffix}"},
        profile=InstanceProfile(
            arn=f"arn:aws:iam::000000000000:instance-profile/p{suffix}", id="A1", role_name="worker"
        ),
    )


INSTANCES = {FIRST: instance(FIRST, SUBNET), SECOND: instance(SECOND, OTHER_SUBNET)}


def role_credentials(profile: InstanceProfile) -> RoleCredentials:
    return RoleCredentials(
        access_key_id=f"key of {profile.arn.rpartition('/')[2]}",
        secret_access_key="secret",  # noqa: S106
        session_token="token",  # noqa: S106
        expiration=datetime.now(UTC) + timedelta(hours=1),
    )


@pytest.fixture
def vpc() -> Iterator[VpcNetwork]:
    with network() as made:
        made.attach("i-0a", FIRST, SUBNET)
        made.attach("i-0b", SECOND, OTHER_SUBNET)
        made.apply(open_to_all(FIRST, SECOND))
        yield made


@pytest.fixture
def nodes(vpc: VpcNetwork) -> dict[str, str]:
    prefix = vpc.router.removesuffix("vpc")
    return {FIRST: f"{prefix}i-0a", SECOND: f"{prefix}i-0b"}


@pytest.fixture
def metadata(vpc: VpcNetwork) -> Iterator[MetadataService]:
    service = MetadataService(vpc.router, lookup=INSTANCES.get, credentials=role_credentials)
    yield service
    service.stop()


def ask(netns: str, method: str, path: str, **headers: str) -> tuple[int, str]:
    """Send one request to the metadata service from a node."""

    def talk() -> tuple[int, str]:
        connection = http.client.HTTPConnection("169.254.169.254", timeout=10)
        connection.request(method, path, headers={key.replace("_", "-"): value for key, value in headers.items()})
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        return answer.status, body

    return namespace.inside(netns, talk)


def new_token(netns: str) -> str:
    status, token = ask(netns, "PUT", "/latest/api/token", X_aws_ec2_metadata_token_ttl_seconds="60")  # noqa: S106
    assert status == 200
    return token


@pytest.mark.usefixtures("metadata")
def test_each_node_reads_its_own_metadata_with_its_own_token(nodes: dict[str, str]) -> None:
    path = "/2021-03-23/meta-data/instance-id"
    assert ask(nodes[FIRST], "GET", path)[0] == 401
    tokens = {ip: new_token(netns) for ip, netns in nodes.items()}
    for ip, netns in nodes.items():
        assert ask(netns, "GET", path, X_aws_ec2_metadata_token=tokens[ip]) == (200, INSTANCES[ip].instance_id)
    assert ask(nodes[SECOND], "GET", path, X_aws_ec2_metadata_token=tokens[FIRST])[0] == 401


@pytest.mark.usefixtures("metadata")
def test_no_node_reads_the_metadata_of_another_by_its_address(nodes: dict[str, str]) -> None:
    namespace.run(["ip", "address", "add", f"{SECOND}/32", "dev", "lo"], netns=nodes[FIRST])
    assert is_dropped(nodes[FIRST], "169.254.169.254", 80, source=SECOND)


@pytest.mark.usefixtures("metadata")
def test_metadata_needs_no_egress_rule(vpc: VpcNetwork, nodes: dict[str, str]) -> None:
    vpc.apply(GroupSnapshot(groups=(), members={}))
    new_token(nodes[FIRST])


@pytest.mark.usefixtures("metadata")
def test_boto3_finds_the_credentials_of_the_node_it_runs_on(nodes: dict[str, str]) -> None:
    for ip, netns in nodes.items():
        found = namespace.inside(netns, lambda: InstanceMetadataFetcher(timeout=10).retrieve_iam_role_credentials())
        assert found["role_name"] == "worker"
        assert found["access_key"] == f"key of p{ip.rpartition('.')[2]}"


def test_metadata_service_ends_idle_connections_when_it_stops(vpc: VpcNetwork, nodes: dict[str, str]) -> None:
    service = MetadataService(vpc.router, lookup=INSTANCES.get, credentials=role_credentials)
    with connect(nodes[FIRST], "169.254.169.254", 80) as idle:
        client = http.client.HTTPConnection("169.254.169.254")
        client.sock = idle
        client.request("GET", "/")
        assert client.getresponse().read()
        service.stop()
        assert idle.recv(1) == b""


@pytest.fixture
def names(vpc: VpcNetwork) -> Iterator[dict[str, list[str]]]:
    records = {"head.0a1b2c3d.slurm.internal": [FIRST]}
    service = DnsService(vpc.router, region="eu-west-1", records=lambda name: records.get(name, ()))
    yield records
    service.stop()


def query(netns: str, server: str, name: str, how: Callable[..., dns.message.Message] = dns.query.udp) -> list[str]:
    """Return the addresses of ``name``; an empty list if there is no such name."""
    answer = namespace.inside(netns, lambda: how(dns.message.make_query(name, "A"), server, timeout=10))
    if answer.rcode() == dns.rcode.NXDOMAIN:
        return []
    assert answer.rcode() == dns.rcode.NOERROR
    return [item.to_text() for item in answer.answer[0]]


@pytest.mark.parametrize("how", [dns.query.udp, dns.query.tcp])
def test_vpc_resolver_answers_at_both_its_addresses(
    names: dict[str, list[str]], nodes: dict[str, str], how: Callable[..., dns.message.Message]
) -> None:
    for server, ip in ((RESOLVER, FIRST), ("10.0.0.2", FIRST), ("10.0.1.2", SECOND)):
        assert query(nodes[ip], server, "head.0a1b2c3d.slurm.internal", how) == [FIRST]
        assert query(nodes[ip], server, "ip-10-0-1-12.eu-west-1.compute.internal", how) == [SECOND]
        assert query(nodes[ip], server, "aws", how) == [API]
        assert query(nodes[ip], server, "bucket.aws", how) == [API]
        assert query(nodes[ip], server, "deb.debian.org", how) == []
    names["head.0a1b2c3d.slurm.internal"] = [SECOND]
    assert query(nodes[FIRST], RESOLVER, "head.0a1b2c3d.slurm.internal", how) == [SECOND]


@pytest.mark.usefixtures("names")
def test_own_dns_server_knows_public_names_only_and_needs_an_egress_rule(
    vpc: VpcNetwork, nodes: dict[str, str]
) -> None:
    for how in (dns.query.udp, dns.query.tcp):
        assert query(nodes[FIRST], OWN_DNS, "aws", how) == [API]
        assert query(nodes[FIRST], OWN_DNS, "head.0a1b2c3d.slurm.internal", how) == []
        assert query(nodes[FIRST], OWN_DNS, "ip-10-0-1-12.eu-west-1.compute.internal", how) == []
    vpc.apply(GroupSnapshot(groups=(), members={}))
    assert is_dropped(nodes[FIRST], OWN_DNS, 53)
    assert query(nodes[FIRST], RESOLVER, "aws") == [API]


@pytest.fixture
def upstream() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def serve_doubled(listening: socket.socket) -> None:
    """Read to the end of one connection and send it all back twice."""
    with listening.accept()[0] as connection:
        data = b""
        while chunk := connection.recv(65536):
            data += chunk
        connection.sendall(data * 2)


def test_relay_passes_bytes_and_ends_of_stream_both_ways(
    vpc: VpcNetwork, nodes: dict[str, str], upstream: socket.socket
) -> None:
    relay = Relay(vpc.router, (API, API_PORT), upstream.getsockname()[1])
    server = threading.Thread(target=serve_doubled, args=(upstream,))
    server.start()
    sent = bytes(range(256)) * 8192
    with connect(nodes[FIRST], API, API_PORT) as client:
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        got = b""
        while chunk := client.recv(65536):
            got += chunk
    server.join()
    relay.stop()
    assert got == sent * 2


def test_relay_stops_while_an_answer_is_awaited(
    vpc: VpcNetwork, nodes: dict[str, str], upstream: socket.socket
) -> None:
    relay = Relay(vpc.router, (API, API_PORT), upstream.getsockname()[1])
    with connect(nodes[FIRST], API, API_PORT) as client, upstream.accept()[0] as silent:
        client.sendall(b"request")
        assert silent.recv(64) == b"request"
        relay.stop()
        assert client.recv(64) == b""
        assert silent.recv(64) == b""


def test_relay_ends_a_connection_when_nothing_listens(vpc: VpcNetwork, nodes: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    relay = Relay(vpc.router, (API, API_PORT), port)
    with connect(nodes[FIRST], API, API_PORT) as client:
        assert client.recv(64) == b""
    relay.stop()


@pytest.mark.parametrize(
    ("egress", "passes"),
    [
        (ANYWHERE, True),
        (GroupRule(protocol="tcp", first=443, last=443, peer_cidr="0.0.0.0/0"), True),
        (GroupRule(protocol="tcp", first=API_PORT, last=API_PORT, peer_cidr="0.0.0.0/0"), False),
        (GroupRule(protocol="tcp", first=443, last=443, peer_cidr="10.0.0.0/16"), False),
        (GroupRule(protocol="-1", peer_group="sg-01"), False),
    ],
)
def test_api_is_on_the_internet_at_443_to_security_groups(
    vpc: VpcNetwork, nodes: dict[str, str], egress: GroupRule, passes: bool
) -> None:
    group = SecurityGroup(id="sg-01", egress=(egress,))
    vpc.apply(GroupSnapshot(groups=(group,), members={FIRST: frozenset({group.id})}))
    with namespace.listening_socket(vpc.router, API, API_PORT, "tcp"):
        if passes:
            connect(nodes[FIRST], API, API_PORT).close()
        else:
            assert is_dropped(nodes[FIRST], API, API_PORT)
            assert [(item.destination, item.port, item.reason) for item in vpc.refused()] == [
                (API, API_PORT, Reason.EGRESS)
            ]


@pytest.mark.usefixtures("metadata")
def test_identity_document_is_the_callers(nodes: dict[str, str]) -> None:
    token = new_token(nodes[SECOND])
    status, body = ask(
        nodes[SECOND], "GET", "/latest/dynamic/instance-identity/document", X_aws_ec2_metadata_token=token
    )
    assert status == 200
    assert json.loads(body)["privateIp"] == SECOND

"""The SSM agent's stand-in as nodes of a stock image get it: from AWS's address, over TLS, with a signature."""

from __future__ import annotations

import socket
import ssl
import subprocess
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path

import pytest

from slurm_cluster.rehearsal.image import architecture
from slurm_cluster.rehearsal.image.agent_kit import AgentKit, ensure_agent_kit
from slurm_cluster.rehearsal.network.addresses import AGENT_BUCKET, agent_bucket_host
from slurm_cluster.rehearsal.network.agent_bucket import AgentBucket, objects
from slurm_cluster.rehearsal.paths import CACHE_VARIABLE
from slurm_cluster.runtime.node import ssm_agent
from slurm_cluster.runtime.node.commands import run
from slurm_cluster.runtime.node.errors import NodeError
from tests.rehearsal.network_probes import SUBNET, connect, network, open_to_all

pytestmark = pytest.mark.rehearsal

REGION, NODE = "us-east-1", "10.0.0.11"
HOST = agent_bucket_host(REGION)


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgentKit:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    return ensure_agent_kit(HOST, architecture())


@pytest.fixture
def node(kit: AgentKit) -> Iterator[str]:
    """Network namespace of a node in a VPC where the bucket is served."""
    with network() as vpc:
        netns = vpc.attach("i-0a", NODE, SUBNET)
        vpc.apply(open_to_all(NODE))
        files = objects(REGION, architecture(), package=kit.package, signature=kit.signature)
        bucket = AgentBucket(vpc.router, certificate=kit.server_certificate, files=files)
        try:
            yield netns
        finally:
            bucket.stop()


def get(node: str, context: ssl.SSLContext, path: str, host: str = HOST) -> tuple[int, bytes]:
    with context.wrap_socket(connect(node, AGENT_BUCKET, 443), server_hostname=host) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = HTTPResponse(connection)
        answer.begin()
        return answer.status, answer.read()


def trusting(kit: AgentKit) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(kit.authority))
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # as Python of Debian 13 does
    return context


def test_it_is_made_once_and_keeps_no_key_that_could_sign(kit: AgentKit) -> None:
    before = kit.package.stat()
    assert ensure_agent_kit(HOST, architecture()) == kit
    assert kit.package.stat() == before
    text = "".join(path.read_text(errors="replace") for path in kit.directory.iterdir())
    assert text.count("PRIVATE KEY-----") == 2, "begin and end of the server's, and no other"
    assert kit.server_certificate.stat().st_mode & 0o077 == 0


def test_the_package_verifies_by_the_key_in_the_image_and_not_by_awss(kit: AgentKit, tmp_path: Path) -> None:
    ssm_agent.verify(run, kit.package, kit.signature, key=kit.signing_key, fingerprint=None)
    with pytest.raises(NodeError, match="not signed by key"):
        ssm_agent.verify(run, kit.package, kit.signature, key=ssm_agent.KEY_FILE, fingerprint=ssm_agent.FINGERPRINT)
    other = tmp_path / "other.deb"
    other.write_bytes(kit.package.read_bytes() + b"0")
    with pytest.raises(NodeError, match="not signed by key"):
        ssm_agent.verify(run, other, kit.signature, key=kit.signing_key, fingerprint=None)


def test_the_package_holds_the_unit_and_starts_it(kit: AgentKit) -> None:
    listing = subprocess.run(["dpkg-deb", "--contents", kit.package], capture_output=True, text=True, check=True).stdout
    assert "root/root" in listing
    assert "./usr/lib/systemd/system/amazon-ssm-agent.service" in listing
    control = ["dpkg-deb", "--info", str(kit.package), "postinst"]
    assert "systemctl start amazon-ssm-agent" in subprocess.run(control, capture_output=True, text=True).stdout


def test_nodes_get_both_objects_at_the_paths_of_awss_and_nothing_else(kit: AgentKit, node: str) -> None:
    path = ssm_agent.package_url(REGION, "amazonaws.com", architecture()).removeprefix(f"https://{HOST}")
    context = trusting(kit)
    assert get(node, context, path) == (200, kit.package.read_bytes())
    assert get(node, context, f"{path}.sig") == (200, kit.signature.read_bytes())
    assert get(node, context, "/latest/windows/agent.exe")[0] == 404


def test_its_certificate_is_for_that_name_and_by_its_own_authority_only(kit: AgentKit, node: str) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        get(node, trusting(kit), "/", host="s3.us-east-1.amazonaws.com")
    with pytest.raises(ssl.SSLCertVerificationError):
        get(node, ssl.create_default_context(), "/")


def test_a_silent_caller_keeps_nobody_waiting(kit: AgentKit, node: str) -> None:
    silent: socket.socket
    with connect(node, AGENT_BUCKET, 443) as silent:
        silent.setblocking(False)
        assert get(node, trusting(kit), "/")[0] == 404

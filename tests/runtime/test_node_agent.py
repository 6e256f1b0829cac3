"""The SSM agent: found, or fetched from AWS and taken only with the right signature."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Self

import pytest

from slurm_cluster.model.flows import Role
from slurm_cluster.model.node_files import SSM_AGENT_UNITS
from slurm_cluster.runtime.node import bootstrap, ssm_agent
from slurm_cluster.runtime.node.commands import run as run_program
from slurm_cluster.runtime.node.errors import NodeError
from slurm_cluster.runtime.node.identity import NodeIdentity
from tests.runtime.node_doubles import Clock, Programs

LOADED = "systemctl show --property=LoadState --value"


def test_an_agent_that_the_image_brings_is_only_started() -> None:
    run = Programs({f"{LOADED} {SSM_AGENT_UNITS[0]}": "not-found\n", f"{LOADED} {SSM_AGENT_UNITS[1]}": "loaded\n"})
    head = NodeIdentity(parameter_path="/p", role=Role.HEAD, node_name=None)
    bootstrap.ensure_agent(bootstrap.Node(head, run=run))
    assert run.calls[-1] == f"systemctl start {SSM_AGENT_UNITS[1]}"
    assert run.called("dpkg") == []


def test_the_agents_address_is_that_of_the_region_and_partition() -> None:
    assert ssm_agent.package_url("cn-north-1", "amazonaws.com.cn", "arm64") == (
        "https://amazon-ssm-cn-north-1.s3.cn-north-1.amazonaws.com.cn/latest/debian_arm64/amazon-ssm-agent.deb"
    )


def test_the_key_is_awss_unless_the_image_names_a_sites_own(tmp_path: Path) -> None:
    assert ssm_agent.signer(tmp_path) == (ssm_agent.KEY_FILE, ssm_agent.FINGERPRINT)
    (tmp_path / "ssm-agent-key.asc").touch()
    assert ssm_agent.signer(tmp_path) == (tmp_path / "ssm-agent-key.asc", None)


needs_gnupg = pytest.mark.skipif(not (shutil.which("gpg") and shutil.which("gpgv")), reason="needs gnupg and gpgv")


@needs_gnupg
def test_the_key_in_the_bundle_is_the_one_that_aws_documents(tmp_path: Path) -> None:
    done = subprocess.run(
        ["gpg", "--homedir", tmp_path, "--with-colons", "--show-keys", ssm_agent.KEY_FILE],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"fpr:::::::::{ssm_agent.FINGERPRINT}:" in done.stdout


class Signer:
    """A key of the test's own."""

    def __init__(self, home: Path, expires: str = "0", faked: str | None = None) -> None:
        home.mkdir(mode=0o700)
        self._home = home
        self._gpg = ["gpg", "--homedir", str(home), "--batch", "--quiet", "--pinentry-mode=loopback", "--passphrase="]
        self._time = [f"--faked-system-time={faked}"] if faked else []
        self._run("--quick-generate-key", "agent@example.com", "rsa2048", "sign", expires)
        listing = self._run("--with-colons", "--list-keys")
        self.fingerprint = next(line.split(":")[9] for line in listing.splitlines() if line.startswith("fpr"))
        self.key = home / "key.asc"
        self.key.write_text(self._run("--armor", "--export"))

    def _run(self, *arguments: str) -> str:
        return subprocess.run([*self._gpg, *self._time, *arguments], capture_output=True, text=True, check=True).stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the agent that gpg started for this key."""
        subprocess.run(["gpgconf", "--homedir", self._home, "--kill", "gpg-agent"], check=True)

    def prolong(self) -> None:
        """Make the key valid today; what was exported stays as it is."""
        self._time = []
        self._run("--quick-set-expire", self.fingerprint, "0")

    def sign(self, path: Path) -> Path:
        signature = path.with_suffix(".sig")
        signature.unlink(missing_ok=True)
        self._run("--detach-sign", "--output", str(signature), str(path))
        return signature


@needs_gnupg
def test_only_a_package_that_the_pinned_key_signed_is_taken(tmp_path: Path) -> None:
    package = tmp_path / "agent.deb"
    package.write_bytes(b"a package")
    with Signer(tmp_path / "signer") as signer, Signer(tmp_path / "other") as other:
        signature = signer.sign(package)
    for fingerprint in (signer.fingerprint, None):
        ssm_agent.verify(run_program, package, signature, fingerprint=fingerprint, key=signer.key)
    for fingerprint, key in ((other.fingerprint, other.key), (other.fingerprint, signer.key), (None, other.key)):
        with pytest.raises(NodeError, match="not signed by key"):
            ssm_agent.verify(run_program, package, signature, fingerprint=fingerprint, key=key)
    package.write_bytes(b"another package")
    with pytest.raises(NodeError, match="it was not installed"):
        ssm_agent.verify(run_program, package, signature, fingerprint=signer.fingerprint, key=signer.key)


@needs_gnupg
def test_a_key_whose_copy_looks_expired_still_verifies(tmp_path: Path) -> None:
    """AWS prolongs its key and keeps the fingerprint; the copy in an older release then shows the former end."""
    package = tmp_path / "agent.deb"
    package.write_bytes(b"a package")
    with Signer(tmp_path / "signer", expires="1y", faked="20200101T000000") as signer:
        signer.prolong()
        signature = signer.sign(package)
    ssm_agent.verify(run_program, package, signature, fingerprint=signer.fingerprint, key=signer.key)


def test_a_download_that_never_comes_says_what_is_needed(tmp_path: Path) -> None:
    clock = Clock()
    with pytest.raises(NodeError, match=r"127\.0\.0\.1:9/x: .*the subnet needs a route to Amazon S3"):
        ssm_agent.download("http://127.0.0.1:9/x", tmp_path / "x", sleep=clock.sleep)
    assert clock.now > 200

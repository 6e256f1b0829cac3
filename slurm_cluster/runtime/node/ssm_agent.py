"""The SSM agent, by which people and the readiness test reach a node. Debian's images have none.

AWS's package comes from the Region's own bucket and is installed only when it is signed by the key that AWS documents
(https://docs.aws.amazon.com/systems-manager/latest/userguide/verify-agent-signature.html). AWS prolongs that key now
and then and keeps its fingerprint, so the copy here may look expired while signatures by it are good.

A site that signs the package itself puts its public key into its image as ``override.d/ssm-agent-key.asc``; that key
then takes the place of AWS's.
"""

from __future__ import annotations

import base64
import shutil
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from slurm_cluster.model.node_files import OVERRIDE_DIR, SSM_AGENT_UNITS
from slurm_cluster.runtime.node.commands import Runner
from slurm_cluster.runtime.node.errors import NodeError

KEY_FILE = Path(__file__).with_name("ssm_agent_key.asc")
FINGERPRINT = "DE92C7DA3E56E92331D62A36BC1F495C97DD04ED"
OVERRIDE_KEY = "ssm-agent-key.asc"
"""File in override.d with the ASCII-armored public key of a site that signs the package itself."""

_PACKAGE = "amazon-ssm-agent.deb"
_ATTEMPTS = 20
_PAUSE = 15


def present_unit(run: Runner) -> str | None:
    """Return the agent's unit where the image brings the agent, else None."""
    for unit in SSM_AGENT_UNITS:
        if run(["systemctl", "show", "--property=LoadState", "--value", unit]).stdout.strip() == "loaded":
            return unit
    return None


def package_url(region: str, url_suffix: str, architecture: str) -> str:
    """Return where AWS publishes the agent's Debian package for a Region."""
    return f"https://amazon-ssm-{region}.s3.{region}.{url_suffix}/latest/debian_{architecture}/{_PACKAGE}"


def signer(directory: Path = OVERRIDE_DIR) -> tuple[Path, str | None]:
    """Return the file of the key that must have signed the package, and its fingerprint.

    None stands for every fingerprint: a site's own file is trusted as it is.
    """
    own = directory / OVERRIDE_KEY
    return (own, None) if own.exists() else (KEY_FILE, FINGERPRINT)


def verify(run: Runner, package: Path, signature: Path, *, key: Path, fingerprint: str | None) -> None:
    """Check that ``signature`` over ``package`` was made by the key in the file ``key``.

    Raises:
        NodeError: it was not, or the key has not that fingerprint.
    """
    with tempfile.TemporaryDirectory() as directory:
        keyring = Path(directory) / "keyring.gpg"
        keyring.write_bytes(dearmor(key.read_text()))
        done = run(["gpgv", "--status-fd", "1", "--keyring", str(keyring), str(signature), str(package)], check=False)
    words = [line.split() for line in done.stdout.splitlines()]
    valid = any(line[1:2] == ["VALIDSIG"] and fingerprint in (None, line[-1]) for line in words)
    bad = any(line[1:2] in (["BADSIG"], ["ERRSIG"], ["REVKEYSIG"]) for line in words)
    if not valid or bad:
        raise NodeError(
            f"the SSM agent's package is not signed by key {fingerprint or f'in {key}'}: it was not installed; "
            "if its publisher has a newer signing key, deploy a release of slurm_cluster that knows it, "
            f"or put the key into the image as {OVERRIDE_DIR / OVERRIDE_KEY}"
        )


def dearmor(text: str) -> bytes:
    """Return the binary form of an ASCII-armored key, which is what gpgv reads."""
    lines = text.strip().splitlines()
    body = lines[lines.index("") + 1 : -1]
    return base64.b64decode("".join(line for line in body if not line.startswith("=")))


def download(url: str, path: Path, *, sleep: Callable[[float], None] = time.sleep) -> None:
    """Fetch ``url`` into ``path``, waiting for a route that comes up late.

    Raises:
        NodeError: it did not come.
    """
    for attempt in range(_ATTEMPTS):
        if attempt:
            sleep(_PAUSE)
        try:
            with urllib.request.urlopen(url, timeout=30) as answer, path.open("wb") as stream:  # noqa: S310 - https
                shutil.copyfileobj(answer, stream)
        except OSError as error:
            problem = error
        else:
            return
    raise NodeError(f"{url}: {problem}: the subnet needs a route to Amazon S3, or the image needs the agent in it")


def install(run: Runner, *, region: str, url_suffix: str, install_packages: Callable[[list[str]], None]) -> None:
    """Download, check and install the agent.

    Args:
        run: runs programs.
        region: Region whose bucket is used.
        url_suffix: domain of the partition's services.
        install_packages: installs Debian packages, for gpgv where the image has none.

    Raises:
        NodeError: as ``download`` and ``verify``, or dpkg failed.
    """
    if shutil.which("gpgv") is None:
        install_packages(["gpgv"])
    architecture = run(["dpkg", "--print-architecture"]).stdout.strip()
    url = package_url(region, url_suffix, architecture)
    with tempfile.TemporaryDirectory() as directory:
        package = Path(directory) / _PACKAGE
        signature = Path(directory) / f"{_PACKAGE}.sig"
        download(url, package)
        download(f"{url}.sig", signature)
        key, fingerprint = signer()
        verify(run, package, signature, key=key, fingerprint=fingerprint)
        run(["dpkg", "--install", str(package)], timeout=600, env={"DEBIAN_FRONTEND": "noninteractive"})

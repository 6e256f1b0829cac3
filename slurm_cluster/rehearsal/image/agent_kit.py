"""Stand-in for the SSM agent's Debian package, signed and served as AWS does with the real one.

AWS's signing key and its server's key are AWS's, so nodes of a stock image are told, by files in the image, to trust
the kit's in their place: a certificate authority, and a signing key in ``override.d``. Both private keys are forgotten
as soon as the kit is made; all that can be signed by them is what is in it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from slurm_cluster.rehearsal.image import recipe
from slurm_cluster.rehearsal.paths import cache_dir

_NAME = "amazon-ssm-agent"
_DAYS = 3650
_SECONDS = 120
_CONTROL = """\
Package: {name}
Version: 0~rehearsal
Architecture: {architecture}
Maintainer: slurm_cluster rehearsal <rehearsal@example.com>
Description: stand-in for the SSM agent in a rehearsal
"""
_POSTINST = f"""\
#!/bin/sh
set -e
systemctl daemon-reload
systemctl enable --quiet {_NAME}
systemctl start {_NAME}
"""
_SERVER = """\
subjectAltName=DNS:{host}
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid
"""


class AgentKitError(RuntimeError):
    """The kit could not be made; the message says which program failed and ends with its output."""


@dataclass(frozen=True)
class AgentKit:
    """What is served to nodes, and what their image must trust for it; all below ``directory``."""

    directory: Path

    @property
    def package(self) -> Path:
        """The Debian package."""
        return self.directory / f"{_NAME}.deb"

    @property
    def signature(self) -> Path:
        """Detached signature of the package."""
        return self.directory / f"{_NAME}.deb.sig"

    @property
    def server_certificate(self) -> Path:
        """Certificate and private key of the server, PEM."""
        return self.directory / "server.pem"

    @property
    def authority(self) -> Path:
        """Certificate of who vouches for the server, PEM."""
        return self.directory / "authority.crt"

    @property
    def signing_key(self) -> Path:
        """Public key of who signed the package, ASCII-armored."""
        return self.directory / "signing-key.asc"

    def image_files(self) -> dict[str, str]:
        """Return the files, by absolute path, with which an image trusts the kit."""
        return {
            recipe.AUTHORITY_FILE: self.authority.read_text(),
            recipe.AGENT_KEY_FILE: self.signing_key.read_text(),
        }


def ensure_agent_kit(host: str, architecture: str) -> AgentKit:
    """Return the kit, making it when there is none of this recipe yet. It stays in the cache directory.

    Args:
        host: name of the server that nodes fetch the package from.
        architecture: Debian's name of the package's architecture.

    Raises:
        AgentKitError: a program failed.
    """
    unit = recipe.agent_unit_file().read_bytes()
    state = repr((host, architecture, _CONTROL, _POSTINST, _SERVER, unit)).encode()
    home = cache_dir() / f"agent-{hashlib.sha256(state).hexdigest()[:12]}"
    cache_dir().mkdir(parents=True, exist_ok=True)
    with (cache_dir() / "agent.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.exists():
            draft = AgentKit(cache_dir() / "agent.building")
            shutil.rmtree(draft.directory, ignore_errors=True)  # what a killed build left; nobody else builds now
            draft.directory.mkdir()
            _make_package(draft, architecture)
            _sign(draft)
            _certify(draft, host)
            draft.directory.rename(home)
    return AgentKit(home)


def _make_package(kit: AgentKit, architecture: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        unit = root / recipe.AGENT_UNIT_FILE
        unit.parent.mkdir(parents=True)
        shutil.copyfile(recipe.agent_unit_file(), unit)
        (root / "DEBIAN").mkdir()
        (root / "DEBIAN/control").write_text(_CONTROL.format(name=_NAME, architecture=architecture))
        postinst = root / "DEBIAN/postinst"
        postinst.write_text(_POSTINST)
        for path in root.rglob("*"):
            path.chmod(0o755 if path.is_dir() or path == postinst else 0o644)
        root.chmod(0o755)
        _run("dpkg-deb", "--root-owner-group", "--build", str(root), str(kit.package))


def _sign(kit: AgentKit) -> None:
    # Not below the cache: the path of gpg's socket may be no longer than 107 characters.
    with tempfile.TemporaryDirectory() as home:
        gpg = ("gpg", f"--homedir={home}", "--batch", "--quiet", "--pinentry-mode=loopback", "--passphrase=")
        try:
            _run(*gpg, "--quick-generate-key", "slurm_cluster rehearsal", "rsa3072", "sign", "never")
            _run(*gpg, "--detach-sign", f"--output={kit.signature}", str(kit.package))
            _run(*gpg, "--armor", "--export", f"--output={kit.signing_key}")
        finally:
            _run("gpgconf", f"--homedir={home}", "--kill", "all")


def _certify(kit: AgentKit, host: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        new_key = ("-newkey", "rsa:2048", "-nodes", "-sha256")
        # A configuration of our own: the system's may add to the certificate what it should not have.
        config = work / "openssl.cnf"
        config.write_text("[req]\ndistinguished_name=name\n[name]\n")
        _run(
            *("openssl", "req", "-x509", *new_key, "-config", str(config), "-days", str(_DAYS)),
            *("-subj", "/CN=slurm_cluster rehearsal", "-keyout", str(work / "ca.key"), "-out", str(kit.authority)),
            *("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign"),
            *("-addext", "subjectKeyIdentifier=hash"),
        )
        _run(
            *("openssl", "req", *new_key, "-config", str(config), "-subj", "/CN=rehearsed bucket"),
            *("-keyout", str(work / "server.key"), "-out", str(work / "server.csr")),
        )
        (work / "server.ext").write_text(_SERVER.format(host=host))
        _run(
            *("openssl", "x509", "-req", "-sha256", "-days", str(_DAYS), "-in", str(work / "server.csr")),
            *("-CA", str(kit.authority), "-CAkey", str(work / "ca.key"), "-CAcreateserial"),
            *(
                "-CAserial",
                str(work / "serial"),
                "-extfile",
                str(work / "server.ext"),
                "-out",
                str(work / "server.crt"),
            ),
        )
        kit.server_certificate.touch(mode=0o600)
        kit.server_certificate.write_text((work / "server.crt").read_text() + (work / "server.key").read_text())


def _run(*argv: str) -> None:
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        argv,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_SECONDS,
    )
    if done.returncode != 0:
        raise AgentKitError(f"making the SSM agent's stand-in: {argv[0]} ended with {done.returncode}:\n{done.stdout}")

"""Where Debian packages are fetched from: as the host does, so that a private mirror or proxy is used there too."""

from __future__ import annotations

import os
import subprocess

VARIABLE = "SLURM_CLUSTER_REHEARSAL_MIRROR"
DEFAULT = "http://deb.debian.org/debian"
_INDEXES = "$(ORIGIN)|$(LABEL)|$(REPO_URI)"


def mirror() -> str:
    """Return the URL of a Debian mirror: the environment's, else the one apt uses on this host, else Debian's."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return chosen.rstrip("/")
    for line in _output("apt-get", "indextargets", "--format", _INDEXES, "Created-By: Packages").splitlines():
        origin, label, url = line.split("|", 2)
        if origin == label == "Debian" and url.startswith(("http://", "https://")):
            return url.rstrip("/")
    return DEFAULT


def through_cache(url: str) -> str:
    """Return the URL at which apt gets to a mirror through the apt cache, which is a plain HTTP proxy for apt.

    For a mirror that speaks TLS it is apt-cacher-ng's own form, with which the cache makes the TLS connection.
    """
    return f"http://HTTPS///{rest}" if (rest := url.removeprefix("https://")) != url else url


def proxy_environment() -> dict[str, str]:
    """Return the proxy variables that debootstrap and apt read, from this host's environment and apt."""
    found = {name: value for name in ("http_proxy", "https_proxy", "no_proxy") if (value := os.environ.get(name))}
    for scheme in ("http", "https"):
        value = _output("apt-config", "--format", "%v%n", "dump", f"Acquire::{scheme}::Proxy").strip()
        if value and value != "DIRECT":
            found[f"{scheme}_proxy"] = value
    return found


def _output(*argv: str) -> str:
    """Return what an apt program prints; nothing where apt is not installed."""
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    except (FileNotFoundError, subprocess.CalledProcessError):
        return ""

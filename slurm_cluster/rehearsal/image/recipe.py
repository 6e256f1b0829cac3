"""What is in the image, and what in it differs from Debian's own EC2 image."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import StrEnum
from itertools import chain
from pathlib import Path

from slurm_cluster.model.node_files import OVERRIDE_DIR
from slurm_cluster.rehearsal.cgroups import Version
from slurm_cluster.rehearsal.network.addresses import API_HOST, API_PORT, PACKAGES, PACKAGES_PORT
from slurm_cluster.runtime.node import packages as node_packages
from slurm_cluster.runtime.node import ssm_agent


class ImageKind(StrEnum):
    """What nodes boot."""

    BAKED = "baked"
    """All packages are in the image: nodes install nothing, and are ready in seconds."""
    STOCK = "stock"
    """As Debian's EC2 image: user data and bootstrap install everything, the SSM agent included."""


SUITE = "trixie"
API_ENDPOINT = f"http://{API_HOST}:{API_PORT}"
"""Where nodes find AWS's APIs."""

BASE_PACKAGES = (
    *("systemd", "systemd-sysv", "libpam-systemd", "ca-certificates", "netbase", "procps"),
    *("iproute2", "iputils-ping", "sudo", "less", "curl", "e2fsprogs"),
    *("python3", "cloud-init"),
)
"""What Debian's EC2 image has and node programs or their users count on."""

NODE_PACKAGES = ("python3-boto3", *node_packages.BASE, *chain.from_iterable(node_packages.BY_ROLE.values()))
"""What nodes would install on EC2 as they boot: the user data's package, and those of every role."""

MASKED_UNITS = (
    *("apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer"),
    *("e2scrub_reap.service", "fstrim.timer", "xfs_scrub_all.timer", "system-xfs_scrub.slice"),
    *("systemd-pstore.service", "cloud-init-hotplugd.socket", "getty@.service", "console-getty.service"),
)
"""Work on the machine's disks, kernel or terminals, which are the host's."""

DISABLED_UNITS = ("munge.service", "slurmctld.service", "slurmd.service")
"""Packages start these; on a node they wait for its key and its configuration."""

ENABLED_UNITS = ("amazon-ssm-agent.service",)

AGENT_UNIT_FILE = "usr/lib/systemd/system/amazon-ssm-agent.service"
"""The agent's stand-in: in a baked image itself, for a stock one in the package that nodes install."""

AGENT_KEY_FILE = str(OVERRIDE_DIR / ssm_agent.OVERRIDE_KEY)
"""In a stock image, who signed the stand-in's package."""

AUTHORITY_FILE = "/usr/local/share/ca-certificates/rehearsal.crt"
"""In a stock image, who vouches for the server that the agent's package comes from."""

_COMMON = (
    "EC2 data source of cloud-init: told that this is EC2 (no DMI data); the rest is cloud-init's own",
    f"API end point: endpoint_url={API_ENDPOINT} in ~/.aws/config of root and of users, AWS_ENDPOINT_URL in the "
    "environment of services",
    "CPUs and memory: nodes count as having what their instance types have (override.d/slurm.conf: "
    "SlurmdParameters=config_overrides), and share what this machine has",
    "kernel and clock: those of this machine",
)
_REPLACED = {
    ImageKind.BAKED: (
        "SSM agent: a stand-in unit; Run Command enters the node from the host",
        "packages: already in the image, which has no SSH server",
    ),
    ImageKind.STOCK: (
        "SSM agent: a stand-in package under the address of AWS's, signed by the rehearsal's key "
        f"(override.d/{ssm_agent.OVERRIDE_KEY}); Run Command enters the node from the host",
        "certificate of that address: by an authority of the rehearsal's own, which the image trusts",
        f"packages: through an apt cache on this machine (apt proxy http://{PACKAGES}:{PACKAGES_PORT}); no SSH server",
    ),
}

_REPLACED_BY_CGROUP_V1 = (
    "cgroup v2: slurmd runs with its cgroup/v1 plugin (freezer, cpuset, devices), as this machine has v1 controllers",
    "memory limits of jobs: not enforced (override.d/cgroup.conf: ConstrainRAMSpace=no, ConstrainSwapSpace=no)",
    "memory use of jobs: read from /proc (override.d/slurm.conf: JobAcctGatherType=jobacct_gather/linux)",
)

_HERE = Path(__file__).parent
_FILE_TREES: dict[Version, tuple[Path, ...]] = {
    1: (_HERE / "files", _HERE / "files_cgroup_v1"),
    2: (_HERE / "files",),
}


def replaced(kind: ImageKind, version: Version) -> tuple[str, ...]:
    """Return a line for each thing in which a node differs from an EC2 instance; every report prints them.

    Args:
        kind: what nodes boot.
        version: which cgroup version has the controllers of the machine that rehearses.
    """
    return _REPLACED[kind] + (() if version == 2 else _REPLACED_BY_CGROUP_V1) + _COMMON


def files(version: Version) -> dict[str, Path]:
    """Return the files that are copied over the installed system, by path relative to its root."""
    return {
        str(path.relative_to(tree)): path
        for tree in _FILE_TREES[version]
        for path in tree.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


def agent_unit_file() -> Path:
    """Return the source of the unit that stands in for the SSM agent, the same whatever machine rehearses."""
    return _HERE / "files" / AGENT_UNIT_FILE


def packages(kind: ImageKind) -> tuple[str, ...]:
    """Return every package that is installed on top of debootstrap's minimal system."""
    return BASE_PACKAGES + NODE_PACKAGES if kind is ImageKind.BAKED else BASE_PACKAGES


def endpoint_files() -> dict[str, str]:
    """Return the files, by absolute path, that name the API end point to AWS's SDKs."""
    # a variable would not outlive sudo, runuser --login or env -i
    config = f"[default]\nendpoint_url = {API_ENDPOINT}\n"
    services = f"[Manager]\nDefaultEnvironment=AWS_ENDPOINT_URL={API_ENDPOINT}\n"
    return {
        "/root/.aws/config": config,
        "/etc/skel/.aws/config": config,
        # system users have no home
        "/etc/systemd/system.conf.d/50-rehearsal.conf": services,
    }


def base_digest(mirror: str) -> str:
    """Return a name for what images of every kind begin with, made of packages of that mirror."""
    return hashlib.sha256(repr((mirror, BASE_PACKAGES)).encode()).hexdigest()[:12]


def digest(architecture: str, kind: ImageKind, version: Version, more: Mapping[str, str]) -> str:
    """Return a name for what the recipe builds for such a machine: it changes when this directory does.

    Args:
        architecture: Debian's name of it.
        kind: of the image.
        version: which cgroup version has the controllers of the machine that rehearses.
        more: further files of the image by absolute path.
    """
    state = hashlib.sha256(
        repr((architecture, version, packages(kind), endpoint_files(), sorted(more.items()))).encode()
    )
    for path in sorted(_HERE.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            state.update(f"{path.relative_to(_HERE)}\0{path.stat().st_size}\0".encode())
            state.update(path.read_bytes())
    return state.hexdigest()[:12]

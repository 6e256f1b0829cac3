"""What is in the image, and what in it differs from Debian's own EC2 image."""

from __future__ import annotations

import hashlib
from itertools import chain
from pathlib import Path

from slurm_cluster.rehearsal.cgroups import Version
from slurm_cluster.rehearsal.network.addresses import API_HOST, API_PORT
from slurm_cluster.rehearsal.node_exec import ENVIRONMENT_FILE
from slurm_cluster.runtime.node import packages as node_packages

SUITE = "trixie"
API_ENDPOINT = f"http://{API_HOST}:{API_PORT}"
"""Where nodes find AWS's APIs."""

BASE_PACKAGES = (
    *("systemd", "systemd-sysv", "libpam-systemd", "ca-certificates", "netbase", "procps"),
    *("iproute2", "iputils-ping", "sudo", "less", "curl", "gnupg", "e2fsprogs"),
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

_REPLACED = (
    "SSM agent: a stand-in unit; Run Command enters the node from the host",
    "EC2 data source of cloud-init: told that this is EC2 (no DMI data); the rest is cloud-init's own",
    f"API end point: AWS_ENDPOINT_URL={API_ENDPOINT} in the environment of services and log-ins",
    "packages: already in the image, which has no SSH server",
    "CPUs and memory: nodes count as having what their instance types have (override.d/slurm.conf: "
    "SlurmdParameters=config_overrides), and share what this machine has",
    "kernel and clock: those of this machine",
)

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


def replaced(version: Version) -> tuple[str, ...]:
    """Return a line for each thing in which a node differs from an EC2 instance; every report prints them.

    Args:
        version: which cgroup version has the controllers of the machine that rehearses.
    """
    return _REPLACED if version == 2 else (*_REPLACED_BY_CGROUP_V1, *_REPLACED)


def files(version: Version) -> dict[str, Path]:
    """Return the files that are copied over the installed system, by path relative to its root."""
    return {
        str(path.relative_to(tree)): path
        for tree in _FILE_TREES[version]
        for path in tree.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


def all_packages() -> tuple[str, ...]:
    """Return every package that is installed on top of debootstrap's minimal system."""
    return BASE_PACKAGES + NODE_PACKAGES


def environment_files() -> dict[str, str]:
    """Return the files, by absolute path, that name the API end point to services and to log-in sessions."""
    variable = f"AWS_ENDPOINT_URL={API_ENDPOINT}"
    return {
        ENVIRONMENT_FILE: f"{variable}\n",
        "/etc/systemd/system.conf.d/50-rehearsal.conf": f"[Manager]\nDefaultEnvironment={variable}\n",
    }


def digest(architecture: str, version: Version) -> str:
    """Return a name for what the recipe builds for such a machine: it changes when this directory does."""
    state = hashlib.sha256(repr((architecture, version, all_packages(), environment_files())).encode())
    for path in sorted(_HERE.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            state.update(f"{path.relative_to(_HERE)}\0{path.stat().st_size}\0".encode())
            state.update(path.read_bytes())
    return state.hexdigest()[:12]

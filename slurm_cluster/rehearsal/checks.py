"""What this machine must offer before a rehearsal starts."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from slurm_cluster.rehearsal import apt_cache_daemon, cgroups
from slurm_cluster.rehearsal.image import ImageKind
from slurm_cluster.rehearsal.paths import STATE_ROOT, cache_dir

_PROGRAMS = {
    "systemd-nspawn": "systemd-container",
    "debootstrap": "debootstrap",
    "nft": "nftables",
    "ip": "iproute2",
    "losetup": "mount",
    "nsenter": "util-linux",
}
"""Program and the Debian package that holds it."""

_STOCK_PROGRAMS = {
    Path(apt_cache_daemon.PROGRAM).name: "apt-cacher-ng",
    "gpg": "gnupg",
    "openssl": "openssl",
    "dpkg-deb": "dpkg",
}
"""The same for a rehearsal with the stock image."""

_LOOP_CONTROL = Path("/dev/loop-control")

_CACHE_BYTES = 3_000_000_000
"""Images, the ministack environment and the CDK CLI."""

_STATE_BYTES = 2_000_000_000
"""Overlays, volumes and logs of one session."""


def problems(image: ImageKind = ImageKind.BAKED) -> list[str]:
    """Return why a rehearsal with that kind of image cannot run on this machine; empty when it can."""
    found = []
    if os.geteuid() != 0:
        found.append("not root: machines, network namespaces and mounts need it; run it as root or with sudo")
    programs = _PROGRAMS | (_STOCK_PROGRAMS if image is ImageKind.STOCK else {})
    missing = {program: package for program, package in programs.items() if _which(program) is None}
    if missing:
        found.append(
            f"not installed: {', '.join(missing)}; run `make deps`, "
            f"or install the Debian packages {', '.join(dict.fromkeys(missing.values()))}"
        )
    if not _has_overlay():
        found.append("the kernel has no overlayfs: load it (`modprobe overlay`) or use another machine")
    if not _LOOP_CONTROL.exists():
        found.append(f"{_LOOP_CONTROL} is missing: load loop devices (`modprobe loop`) or use another machine")
    found += cgroups.problems()
    for path, needed in _disk_needs().items():
        free = shutil.disk_usage(path).free
        if free < needed:
            found.append(
                f"{path} has {free / 1e9:.1f} GB free, {needed / 1e9:.0f} GB are needed: free some, "
                "or set SLURM_CLUSTER_REHEARSAL_CACHE to a directory with more room"
            )
    return found


def _which(program: str) -> str | None:
    path = os.environ.get("PATH", os.defpath)
    return shutil.which(program, path=f"{path}:/usr/sbin:/sbin")


def _has_overlay() -> bool:
    listed = Path("/proc/filesystems").read_text().split()
    # Not listed when it is a module that nothing has used yet.
    release = os.uname().release
    return "overlay" in listed or Path("/lib/modules", release, "kernel/fs/overlayfs").is_dir()


def _disk_needs() -> dict[Path, int]:
    """Return the free bytes needed, by the nearest existing directory; one entry a file system."""
    needs: dict[int, tuple[Path, int]] = {}
    for path, needed in ((cache_dir(), _CACHE_BYTES), (STATE_ROOT, _STATE_BYTES)):
        there = next(parent for parent in (path, *path.parents) if parent.exists())
        device = there.stat().st_dev
        _, sum_so_far = needs.get(device, (there, 0))
        needs[device] = (there, sum_so_far + needed)
    return dict(needs.values())

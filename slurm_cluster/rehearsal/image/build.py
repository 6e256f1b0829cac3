"""Builds the image: debootstrap, packages, files. A finished image is never changed; nodes lay an overlay over it."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from slurm_cluster.rehearsal import cgroups
from slurm_cluster.rehearsal.image import mirror, recipe
from slurm_cluster.rehearsal.image.agent_kit import AgentKit
from slurm_cluster.rehearsal.image.recipe import ImageKind
from slurm_cluster.rehearsal.network.addresses import PACKAGES, PACKAGES_PORT
from slurm_cluster.rehearsal.ownership import SESSION_VARIABLE
from slurm_cluster.rehearsal.paths import cache_dir

Log = Callable[[str], None]

_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_UNUSED_SECONDS = 24 * 3600.0
_NAMESPACES = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
"""Before a program: when it ends or is killed, its mounts and its children end with it."""

_ROOT_SCRIPT = """
mount -t proc proc "$1/proc"
mount -t sysfs -o ro sysfs "$1/sys"
touch "$1/etc/resolv.conf" "$1/etc/hosts"
mount --bind /etc/resolv.conf "$1/etc/resolv.conf"
mount --bind /etc/hosts "$1/etc/hosts"
root=$1; shift
exec chroot "$root" "$@"
"""
_PACKAGE_SERVICES_STAY_OFF = "#!/bin/sh\nexit 101\n"


class ImageError(RuntimeError):
    """The image could not be built; the message says which step failed and ends with its output."""


def ensure_baked_image(log: Log) -> Path:
    """Return the root directory of the baked image, building it first when there is none of this recipe.

    It stays in the cache directory. Concurrent callers wait for one build.

    Args:
        log: told what is being done and how long it took, a line at a time.

    Raises:
        ImageError: a step of the build failed.
    """
    return _ensure(ImageKind.BAKED, recipe.endpoint_files(), log)


def ensure_stock_image(kit: AgentKit, log: Log) -> Path:
    """Return the root directory of the stock image, as ``ensure_baked_image``.

    Args:
        kit: what nodes install as the SSM agent.
        log: as of ``ensure_baked_image``.
    """
    files = {**recipe.endpoint_files(), **kit.image_files(), **_package_sources()}
    return _ensure(ImageKind.STOCK, files, log)


def _ensure(kind: ImageKind, files: Mapping[str, str], log: Log) -> Path:
    machine = architecture()
    images = cache_dir() / "images"
    images.mkdir(parents=True, exist_ok=True)
    image = images / f"{recipe.SUITE}-{kind.value}-{machine}-{recipe.digest(machine, kind, cgroups.version(), files)}"
    with _locked(images / "lock", log):
        if not image.exists():
            _remove_unused(images)
            log(f"building the node image {image.name}")
            began = time.monotonic()
            _build(image, kind, files, log)
            log(f"built the node image in {time.monotonic() - began:.0f} s")
        os.utime(image)
    return image


def architecture() -> str:
    """Return Debian's name of this machine's architecture.

    Raises:
        ImageError: no image is made for it.
    """
    machine = os.uname().machine
    known = {"x86_64": "amd64", "aarch64": "arm64"}
    if machine not in known:
        raise ImageError(f"machine type {machine!r} has no node image: use one of {', '.join(known)}")
    return known[machine]


def _package_sources() -> dict[str, str]:
    """Return apt's files of a stock image: the host's mirror, through the cache."""
    return {
        "/etc/apt/sources.list": _sources(mirror.through_cache(mirror.mirror())),
        "/etc/apt/apt.conf.d/50rehearsal": f'Acquire::http::Proxy "http://{PACKAGES}:{PACKAGES_PORT}";\n',
    }


def _sources(url: str) -> str:
    return "".join(f"deb {url} {suite} main\n" for suite in (recipe.SUITE, f"{recipe.SUITE}-updates"))


@contextmanager
def _locked(path: Path, log: Log) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log("waiting for another session that builds the node image")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _remove_unused(images: Path) -> None:
    """Remove builds that were cut off, and images that no node uses and no session asked for during the last day."""
    mounts = Path("/proc/self/mounts").read_text()
    for path in images.iterdir():
        cut_off = path.suffix == ".building"
        unused = path.is_dir() and str(path) not in mounts and time.time() - path.stat().st_mtime > _UNUSED_SECONDS
        if cut_off or unused:
            shutil.rmtree(path)


def _build(image: Path, kind: ImageKind, files: Mapping[str, str], log: Log) -> None:
    base = image.with_name(f"{recipe.SUITE}-base-{architecture()}-{recipe.base_digest(mirror.mirror())}")
    if not base.exists():
        _build_base(base, log)
    root = image.with_suffix(".building")
    _run("copy of the base", "cp", "--archive", "--reflink=auto", str(base), str(root))
    if more := recipe.packages(kind)[len(recipe.BASE_PACKAGES) :]:
        log(f"  {len(more)} packages of nodes and what they need")
        _install(root, more)
    _copy_files(root, files)
    _in_root(root, "systemctl", "mask", *recipe.MASKED_UNITS)
    if kind is ImageKind.BAKED:
        _in_root(root, "systemctl", "disable", *recipe.DISABLED_UNITS)
        _in_root(root, "systemctl", "enable", *recipe.ENABLED_UNITS)
    else:
        (root / recipe.AGENT_UNIT_FILE).unlink()
        _in_root(root, "update-ca-certificates")
    _forget_identity(root)
    root.rename(image)


def _build_base(base: Path, log: Log) -> None:
    """Build what every kind of image begins with; the next day it is built anew."""
    root = base.with_suffix(".building")
    url = mirror.mirror()
    log(f"  Debian {recipe.SUITE} from {url}")
    _run(
        "debootstrap",
        *_NAMESPACES,
        "debootstrap",
        *("--variant=minbase", f"--arch={architecture()}", f"--keyring={_KEYRING}"),
        *(recipe.SUITE, str(root), url),
    )
    _write(root / "etc/apt/sources.list", _sources(url))
    _write(root / "usr/sbin/policy-rc.d", _PACKAGE_SERVICES_STAY_OFF, mode=0o755)
    # Nothing is lost when the host stops: only a whole image is used.
    _write(root / "etc/dpkg/dpkg.cfg.d/rehearsal", "force-unsafe-io\n")
    log(f"  {len(recipe.BASE_PACKAGES)} packages of the base and what they need")
    _install(root, recipe.BASE_PACKAGES)
    root.rename(base)


def _install(root: Path, packages: Sequence[str]) -> None:
    _in_root(root, "apt-get", "update")
    _in_root(root, "apt-get", "-y", "--no-install-recommends", "install", *packages)
    # EC2's image has no package lists either; with them every use of apt takes a second longer.
    _in_root(root, "apt-get", "distclean")


def _copy_files(root: Path, files: Mapping[str, str]) -> None:
    """Write as a package installs: whatever owner and modes files and directories of the source tree have."""
    for path, source in recipe.files(cgroups.version()).items():
        _write(root / path, source.read_text())
    for path, text in files.items():
        _write(root / path.lstrip("/"), text)


def _forget_identity(root: Path) -> None:
    """Remove what must differ between nodes, and what only the build needed."""
    (root / "etc/machine-id").write_text("")
    for path in (
        *("var/lib/dbus/machine-id", "etc/hostname", "etc/resolv.conf", "etc/munge/munge.key"),
        *("usr/sbin/policy-rc.d", "etc/dpkg/dpkg.cfg.d/rehearsal"),
    ):
        (root / path).unlink(missing_ok=True)


def _write(path: Path, text: str, *, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def _in_root(root: Path, *argv: str) -> None:
    """Run a program in the image."""
    _run(
        " ".join(argv[:2]),
        *_NAMESPACES,
        *("sh", "-ec", _ROOT_SCRIPT, "sh", str(root), *argv),
    )


def _run(step: str, *argv: str) -> None:
    environment = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LC_ALL": "C.UTF-8",
        "DEBIAN_FRONTEND": "noninteractive",
        **mirror.proxy_environment(),
        **{name: os.environ[name] for name in (SESSION_VARIABLE,) if name in os.environ},
    }
    done = subprocess.run(
        argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-20:])
        raise ImageError(f"building the node image: {step} ended with status {done.returncode}:\n{tail}")

"""Runs apt-cacher-ng as long as somebody holds it; started by ``apt_cache`` as a process of its own."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import random
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

from slurm_cluster.rehearsal.image import mirror

USERS = "users.lock"
"""Held shared by each user of the cache."""

DAEMON = "daemon.lock"
"""Held by the daemon that runs; it contains the port."""

PROGRAM = "/usr/sbin/apt-cacher-ng"
_USER = "apt-cacher-ng"
_SUPPORT = "/usr/lib/apt-cacher-ng"
_MOST_BYTES = 1_000_000_000
_POLL_SECONDS = 0.5
_END_SECONDS = 10.0
_PORTS = range(20000, 32768)


def main(directory: Path) -> int:
    """Serve until nobody holds the cache any more; return the exit status."""
    with (directory / DAEMON).open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another daemon runs")
            return 1
        lock.truncate(0)
        packages = _room(directory)
        port = _free_port()
        process = subprocess.Popen(_command(directory, packages, port), stdin=subprocess.DEVNULL)
        lock.write(f"{port}\n")
        lock.flush()
        with (directory / USERS).open("a") as users:
            while process.poll() is None and not _alone(users.fileno()):
                time.sleep(_POLL_SECONDS)
            code = process.poll()
            _end(process)
    return 0 if code is None else 1


def _room(directory: Path) -> Path:
    """Return the directory of packages, emptied where upgrades of many months have filled it."""
    packages = directory / "packages"
    if sum(path.lstat().st_size for path in packages.rglob("*") if path.is_file()) > _MOST_BYTES:
        shutil.rmtree(packages)
    for path in (packages, directory / "log"):
        path.mkdir(exist_ok=True)
        if os.geteuid() == 0:
            user = pwd.getpwnam(_USER)
            os.chown(path, user.pw_uid, user.pw_gid)
    return packages


def _command(directory: Path, packages: Path, port: int) -> list[str]:
    # Not the file of the system's own apt-cacher-ng, whatever an administrator has written there.
    configuration = directory / "configuration"
    configuration.mkdir(exist_ok=True)
    settings = {
        "CacheDir": packages,
        "LogDir": directory / "log",
        "SupportDir": _SUPPORT,
        "PidFile": directory / "log" / "pid",
        "BindAddress": "127.0.0.1",
        "Port": port,
        "ForeGround": 1,
        "AllowUserPorts": "80 443",
    }
    if proxy := mirror.proxy_environment().get("http_proxy"):
        settings["Proxy"] = proxy
    text = "".join(f"{name}: {value}\n" for name, value in settings.items())
    (configuration / "acng.conf").write_text(text)
    # The kernel ends it with this process, however that ends.
    as_user = ("--reuid", _USER, "--regid", _USER, "--init-groups") if os.geteuid() == 0 else ()
    return ["setpriv", *as_user, "--pdeathsig", "KILL", "--", PROGRAM, "-c", str(configuration)]


def _alone(users: int) -> bool:
    """Return whether nobody holds the cache; then nobody can until this process ends."""
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    # apt-cacher-ng takes a number above 32767 for no port at all.
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no port between 20000 and 32767 is free")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

"""One EC2 instance on this machine: a Debian system that systemd-nspawn boots on an overlay over the image."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_cluster.rehearsal import cgroups, leftovers, node_exec
from slurm_cluster.rehearsal.lifeline import Lifeline
from slurm_cluster.rehearsal.paths import SessionPaths, name

if TYPE_CHECKING:
    from slurm_cluster.rehearsal.volume import Volume

REBOOT_EXIT = 133
"""systemd-nspawn's exit code when the guest asked for a reboot; start the machine again."""

AGENT_UNIT = "amazon-ssm-agent.service"

_START_SECONDS = 30.0
_KILL_SECONDS = 10.0
_POLL_SECONDS = 0.02
_POWER_OFF = signal.SIGRTMIN + 4
_REBOOT = signal.SIGRTMIN + 5


class MachineError(RuntimeError):
    """A machine did not do what it was told; the message ends with the last lines of its console."""


class Machine:
    """A machine that keeps its disk from start to start, as an instance keeps its root volume.

    It runs no longer than the process that made it.

    Files, below ``paths.nodes/<instance id>``: ``pid1`` (the pid of its init process on this machine, while it runs),
    ``console.log`` (of all its boots), ``root`` (mounted overlay), ``upper`` (what the overlay holds), ``work``.

    Args:
        paths: of the session.
        instance_id: EC2 instance id, ``i-`` and hexadecimal digits.
        image: root directory of the image, see ``image.ensure_baked_image``.
        netns: name of the network namespace it uses; it must exist at every start.
        resolv_conf: text of its /etc/resolv.conf at every boot, as DHCP would give, see
            ``network.addresses.resolv_conf``.
    """

    def __init__(self, paths: SessionPaths, instance_id: str, *, image: Path, netns: str, resolv_conf: str) -> None:
        self.instance_id = instance_id
        self.name = name(paths.session, instance_id)
        self.directory = paths.nodes / instance_id
        self.console_log = self.directory / "console.log"
        self._image = image
        self._netns = netns
        self._resolv_conf = resolv_conf
        self._groups = cgroups.of_node(self.name)
        self._nspawn: subprocess.Popen[bytes] | None = None
        self._lifeline: Lifeline | None = None
        self._pid1: int | None = None
        self._volumes: list[Volume] = []
        self._lock = threading.RLock()

    @property
    def root(self) -> Path:
        """Its root directory as the host sees it; mounted from the first start to ``remove``."""
        return self.directory / "root"

    @property
    def pid1(self) -> int:
        """Pid of its init process on this machine.

        Raises:
            MachineError: it is not running.
        """
        if self._pid1 is None:
            raise self._error("is not running")
        return self._pid1

    @property
    def volumes(self) -> tuple[Volume, ...]:
        """What is attached; see ``Volume.attach``."""
        return tuple(self._volumes)

    def start(self) -> None:
        """Boot it and return as soon as its init process runs; volumes that are attached have their devices then.

        Raises:
            MachineError: it runs already, or ended before its init process ran.
        """
        with self._lock:
            if self._nspawn is not None and self.poll() is None:
                raise self._error("is already running")
            self._mount()
            # In what an earlier boot left of its groups systemd starts no unit.
            self._groups.kill()
            self._groups.remove()
            leftovers.remove_directories(self.name)
            self._groups.create()
            self._lifeline = self._lifeline or Lifeline(self._groups.kill_file)
            (self.root / "etc/resolv.conf").write_text(self._resolv_conf)
            with self.console_log.open("ab") as console:
                self._nspawn = subprocess.Popen(
                    self._command(),
                    stdin=subprocess.DEVNULL,
                    stdout=console,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C is for the session, which powers machines off in order
                )
            self._pid1 = self._wait_for_init(self._nspawn)
            for volume in self._volumes:
                volume.plug(self._pid1)
            draft = self.directory / "pid1.new"  # whoever reads pid1 finds a whole pid in it
            draft.write_text(f"{self._pid1}\n")
            draft.rename(self.directory / "pid1")

    def _mount(self) -> None:
        for part in ("root", "upper", "work"):
            (self.directory / part).mkdir(parents=True, exist_ok=True)
        if self.root.is_mount():
            return
        options = f"lowerdir={self._image},upperdir={self.directory / 'upper'},workdir={self.directory / 'work'}"
        subprocess.run(["mount", "-t", "overlay", self.name, "-o", options, str(self.root)], check=True)

    def _command(self) -> list[str]:
        return [
            *self._groups.entry(),
            *_clocks_from_now(),
            *("systemd-nspawn", "--quiet", "--boot", f"--machine={self.name}", f"--directory={self.root}"),
            *("--register=no", "--keep-unit", "--console=read-only"),
            # cloud-init names the host at its first boot; /etc/hostname wins afterwards.
            "--hostname=localhost",
            *("--resolv-conf=off", "--timezone=off"),
            f"--network-namespace-path=/run/netns/{self._netns}",
            # The metadata guard writes nftables rules, in the node's own network namespace.
            "--capability=CAP_NET_ADMIN",
            *self._groups.binds(),
        ]

    def _wait_for_init(self, nspawn: subprocess.Popen[bytes]) -> int:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if nspawn.poll() is not None:
                raise self._error(f"ended with exit code {nspawn.returncode} before its init process ran")
            if (pid := self._groups.init()) is not None:
                return pid
            time.sleep(_POLL_SECONDS)
        self.kill()
        raise self._error(f"had no init process {_START_SECONDS:.0f} s after its start")

    def poll(self) -> int | None:
        """Return None while it runs (or was never started), else how it ended.

        0: powered off. ``REBOOT_EXIT``: wants to be started again. Anything else: killed from outside; whatever of it
        still lived is dead now.
        """
        with self._lock:
            if self._nspawn is None:
                return None
            code = self._nspawn.poll()
            if code is not None and self._pid1 is not None:
                self._pid1 = None
                (self.directory / "pid1").unlink(missing_ok=True)
                self._groups.kill()
            return code

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._nspawn is not None and self.poll() is None

    def power_off(self) -> None:
        """Ask it to shut down, as EC2's StopInstances does; ``poll`` tells when it has."""
        self._signal(_POWER_OFF)

    def reboot(self) -> None:
        """Ask it to reboot, as EC2's RebootInstances does; it then ends with ``REBOOT_EXIT``."""
        self._signal(_REBOOT)

    def _signal(self, number: int) -> None:
        with self._lock:
            if self.running and self._pid1 is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pid1, number)

    def wait(self, timeout: float) -> int:
        """Return how it ended, waiting up to ``timeout`` seconds.

        Raises:
            MachineError: it still runs, or was never started.
        """
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if self._nspawn is None or time.monotonic() > deadline:
                raise self._error(f"did not end within {timeout:.0f} s")
            time.sleep(_POLL_SECONDS)
        return code

    def stop(self, timeout: float = 90.0) -> None:
        """Power it off and wait for that; after ``timeout`` seconds kill it, as EC2 does with a hung guest."""
        self.power_off()
        if self.running:
            with contextlib.suppress(MachineError):
                self.wait(timeout)
        self.kill()

    def kill(self) -> None:
        """End all its processes at once, as a power cut does; its disk and volumes stay.

        Raises:
            MachineError: the kernel does not let go of it.
        """
        with self._lock:
            self._groups.kill()
            if self._nspawn is not None:
                try:
                    self._nspawn.wait(_KILL_SECONDS)
                except subprocess.TimeoutExpired:
                    raise self._error(f"lives {_KILL_SECONDS:.0f} s after it was killed") from None
                self.poll()

    def remove(self) -> None:
        """Kill it and remove everything of it, its disk included; the files of attached volumes stay."""
        with self._lock:
            self.kill()
            for volume in self.volumes:
                volume.detach()
            leftovers.remove_machine(self.name, self.directory)
            shutil.rmtree(self.directory)
            if self._lifeline is not None:
                self._lifeline.cut()
                self._lifeline = None
            self._nspawn = None

    def exec(
        self, argv: Sequence[str], *, timeout: float, input: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in it as root, see ``node_exec.command``; its exit status is not judged.

        Raises:
            MachineError: the machine is not running.
            subprocess.TimeoutExpired: it ran longer than ``timeout`` seconds and was killed.
        """
        process = subprocess.Popen(
            node_exec.command(self.pid1, list(argv)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            out, err = process.communicate(input, timeout)
        except BaseException:
            # nsenter is only the parent of the program in the node; the group holds both.
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
        return subprocess.CompletedProcess(list(argv), process.returncode, out, err)

    def agent_online(self) -> bool:
        """Return whether its SSM agent runs, so that it takes Run Command."""
        return self.running and self._groups.unit_runs(AGENT_UNIT)

    def hold(self, volume: Volume) -> None:
        """Take note of an attached volume; for ``Volume`` alone."""
        self._volumes.append(volume)

    def release(self, volume: Volume) -> None:
        """Forget an attached volume; for ``Volume`` alone."""
        self._volumes.remove(volume)

    def _error(self, what: str) -> MachineError:
        lines = console_tail(self.console_log)
        return MachineError("\n".join((f"machine {self.name} {what}", *lines)))


def console_tail(path: Path, lines: int = 15) -> list[str]:
    """Return the last lines of a console log."""
    if not path.exists():
        return []
    return path.read_text(errors="replace").splitlines()[-lines:]


def _clocks_from_now() -> list[str]:
    """Return the command that starts a program whose children count their uptime from now.

    slurmctld knows a reboot by the uptime that slurmd reports; with the host's it would think that jobs still run.
    """
    uptime = int(time.clock_gettime(time.CLOCK_BOOTTIME))
    return ["unshare", "--time", f"--monotonic=-{uptime}", f"--boottime=-{uptime}", "--"]

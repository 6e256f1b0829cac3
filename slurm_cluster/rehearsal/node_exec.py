"""How a command is run inside a node from the host, as the SSM agent of an EC2 instance would run it.

Standard library only: the process that stands for AWS's API loads this file by itself.
"""

from __future__ import annotations

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The PATH that systemd gives to services on Debian (systemd.exec(5))."""

CAPABILITIES = (
    "audit_control",
    "audit_write",
    "chown",
    "dac_override",
    "dac_read_search",
    "fowner",
    "fsetid",
    "ipc_owner",
    "kill",
    "lease",
    "linux_immutable",
    "mknod",
    "net_admin",
    "net_bind_service",
    "net_broadcast",
    "net_raw",
    "setfcap",
    "setgid",
    "setpcap",
    "setuid",
    "sys_admin",
    "sys_boot",
    "sys_chroot",
    "sys_nice",
    "sys_ptrace",
    "sys_tty_config",
)
"""What root in a node has: systemd-nspawn's defaults for a booted container (systemd-nspawn(1)) and net_admin."""


def command(pid1: int, argv: list[str]) -> list[str]:
    """Return the host command that runs ``argv`` as root in the node whose PID 1 is ``pid1`` here.

    The command has the node's name spaces and root directory, the capabilities of the node's root, and PATH alone as
    its environment. HOME is not set, as in Run Command on EC2.
    """
    if pid1 <= 1:
        raise ValueError(f"pid {pid1} is not the init process of a node: give its pid as the host sees it")
    if not argv:
        raise ValueError("no command given: give a program and its arguments")
    bounding = ",".join(("-all", *(f"+{capability}" for capability in CAPABILITIES)))
    return [
        *inside(pid1),
        *("env", "-i", f"PATH={PATH}"),
        *("setpriv", f"--bounding-set={bounding}"),
        *argv,
    ]


def inside(pid1: int) -> list[str]:
    """Return the host command that enters the node with all of the host's capabilities; append a program to it."""
    return ["nsenter", f"--target={pid1}", "-m", "-u", "-i", "-n", "-p", "-C", "-T", "-r", "-w", "--"]

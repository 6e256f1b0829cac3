"""Slurm on lab machines as Debian's packages have it: what every cluster of them has in common."""

from __future__ import annotations

from tests.rehearsal.slurm_lab.lab_machine import LabMachine

SLURM_CONF = """\
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
"""
"""All of slurm.conf but names and nodes."""

MUNGED = ("setpriv", "--reuid", "munge", "--regid", "munge", "--clear-groups")
"""Becomes munged's user."""


def configure(machine: LabMachine, *, hosts: str, slurm_conf: str) -> None:
    """Give a machine its files and the folders that packages make at boot; nothing is started."""
    machine.write("/etc/hosts", f"127.0.0.1 localhost\n{hosts}")
    machine.write("/etc/slurm/slurm.conf", slurm_conf)
    machine.write("/etc/slurm/cgroup.conf", "CgroupPlugin=disabled\n")
    machine.check(["install", "-d", "-o", "munge", "-g", "munge", "/run/munge", "/var/log/munge"])
    machine.check(["install", "-d", "-o", "slurm", "/var/lib/slurm/slurmctld", "/var/log/slurm"])


def give_key(machine: LabMachine, key: str) -> None:
    """Write the munge key as munged demands it."""
    machine.write("/etc/munge/munge.key", key)
    machine.check(["chown", "munge:munge", "/etc/munge/munge.key"])
    machine.check(["chmod", "400", "/etc/munge/munge.key"])

"""Faults of a machine below Slurm: disks, mounts, clock, ports, SSM agent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from slurm_cluster.runtime.connections import label
from slurm_cluster.runtime.evidence import HEAD, Evidence
from slurm_cluster.runtime.fault import Code, Verdict
from slurm_cluster.runtime.machine_faults import SET_CLOCKS

LEAST_BYTES = 16 * 2**20
"""A file system with less room is full: a job's script, a log line and Slurm's state no longer fit together."""

LEAST_INODES = 64
SPOOL_FULL = "SlurmdSpoolDir is full"
"""With this reason slurmd drains its own node (slurmd/req.c)."""

MOST_SKEW_SECONDS = 60
"""munge refuses credentials at 300 (munge.7, time to live)."""


def disks(evidence: Evidence) -> Iterator[Verdict]:
    """Yield file systems without room that Slurm or its jobs write to."""
    for node in evidence.machines:
        for item in evidence.fact(node, "disks") or ():
            if lack := _lack(item):
                yield Verdict(
                    code=Code.DISK_FULL,
                    node=node,
                    sentence=f"the file system {item['mount']} of {label(node)}, which holds {item['path']}, is full: "
                    f"{lack}. Slurm can write no state, no log and no job script there.",
                    change=f"Make room on {label(node)} (df -h {item['mount']}; df -i; du -xh --max-depth=2 "
                    f"{item['mount']} | sort -h | tail), then restart the daemon that stopped.",
                )


def _lack(item: dict[str, Any]) -> str:
    # what little a small file system has may be all that it ever had
    if item["available"] < min(LEAST_BYTES, item["size"] // 100):
        return f"{item['available'] // 1024} KiB of {item['size'] // 2**20} MiB are free"
    if item["inodes"] and item["inodes_free"] < LEAST_INODES:
        return f"{item['inodes_free']} of {item['inodes']} inodes are free"
    return ""


def spools(evidence: Evidence) -> Iterator[Verdict]:
    """Yield nodes that slurmd itself has drained as it could not write a job, where the disk was not looked at."""
    for node in evidence.workers:
        visit = evidence.answers.get(f"visit:{node}", {})
        row = (evidence.fact(HEAD, "nodes") or {}).get(node, {})
        # the reason outlives the drain
        kept = row.get("reason", "") if "DRAIN" in row.get("state", "") else ""
        said = next((text for text in (visit.get("drained", ""), kept) if SPOOL_FULL in text), "")
        if said and not evidence.fact(node, "disks"):
            yield Verdict(
                code=Code.DISK_FULL,
                node=node,
                sentence=f"the file system of SlurmdSpoolDir on {node} is full: slurmd could not write what a job "
                f"needs and drained the node with the reason '{said}'.",
                change=f"Make room on {node} (df -h and df -i of SlurmdSpoolDir, /var/lib/slurm/slurmd or what "
                f"scontrol show config says), then `scontrol update nodename={node} state=resume`.",
            )


def mounts(evidence: Evidence) -> Iterator[Verdict]:
    """Yield mounts that do not answer, and such as take no writes where they should."""
    for node in evidence.machines:
        for item in evidence.fact(node, "hung") or ():
            yield Verdict(
                code=Code.MOUNT_HUNG,
                node=node,
                sentence=f"the mount {item['mount']} of {label(node)} ({item['device']}, {item['kind']}) hangs: its "
                "file system gave no answer within 4 seconds. Every process that touches it waits with it.",
                change=f"See whether the server of {item['device']} lives and can be reached, mount it anew (umount -f "
                f"-l {item['mount']}), and keep Slurm's own folders off it.",
            )
    for node in evidence.machines:
        for item in evidence.fact(node, "read_only") or ():
            yield Verdict(
                code=Code.MOUNT_READ_ONLY,
                node=node,
                sentence=f"the mount {item['mount']} of {label(node)} ({item['device']}, {item['kind']}) is read-only, "
                f"but {item['why']}.",
                change=f"See why (dmesg | grep -i remount: a kernel does so after an error of the disk), then mount -o "
                f"remount,rw {item['mount']}.",
            )


def clocks(evidence: Evidence) -> Iterator[Verdict]:
    """Yield workers whose clock is not the head's, although munge still bears it."""
    for node in evidence.workers:
        skew = evidence.fact(node, "skew") or 0
        if abs(skew) > MOST_SKEW_SECONDS:
            yield Verdict(
                code=Code.CLOCK_DIFFERS,
                node=node,
                sentence=f"the clock of {node} is at least {abs(skew):.0f} seconds "
                f"{'ahead of' if skew > 0 else 'behind'} the head's. At 300 seconds munge, and with "
                "it Slurm, refuses every message between them.",
                change=SET_CLOCKS,
            )


def srun_ports(evidence: Evidence) -> Iterator[Verdict]:
    """Yield machines on which no srun could get the ports that it listens on."""
    for node in evidence.machines:
        found = evidence.fact(node, "srun_ports")
        if found and found["free"] < found["enough"]:
            yield Verdict(
                code=Code.SRUN_PORTS_EXHAUSTED,
                node=node,
                sentence=f"an srun on {label(node)} cannot listen: of the {found['size']} ports {found['range']} that "
                f"SrunPortRange gives it, {found['free']} are free, and each srun needs {found['enough']}, two more "
                "for every 48 nodes. It ends with 'all ports in range exhausted'; no firewall is involved.",
                change="Widen SrunPortRange in slurm.conf and, by the same range, the rule that admits it (8 ports for "
                f"each srun that runs at once do for 144 nodes); `ss -ltnp` on {label(node)} shows who holds them now.",
            )


def agents(evidence: Evidence) -> Iterator[Verdict]:
    """Yield machines whose SSM agent is installed and does not run."""
    for node in evidence.machines:
        agent = evidence.fact(node, "ssm_agent")
        if agent and agent["active"] != "active":
            said = f"; its journal ends: {agent['journal']}" if agent["journal"] else ""
            yield Verdict(
                code=Code.SSM_AGENT_DOWN,
                node=node,
                sentence=f"the SSM agent of {label(node)} does not run: it is {agent['active']} ({agent['sub']}, "
                f"result {agent['result']}){said}. Slurm does not need it; Session Manager and Run Command do.",
                change="Start it there: systemctl enable --now amazon-ssm-agent (snap: snap start amazon-ssm-agent).",
            )

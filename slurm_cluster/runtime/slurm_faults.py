"""Faults that Slurm itself tells of: refused messages, releases, configuration, node states, jobs that do not start."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from slurm_cluster.model.node_states import ASLEEP
from slurm_cluster.runtime.connections import daemon_of, label
from slurm_cluster.runtime.evidence import HEAD, Evidence
from slurm_cluster.runtime.fault import Code, Verdict
from slurm_cluster.runtime.host_faults import SPOOL_FULL
from slurm_cluster.runtime.machine_faults import SET_CLOCKS, fit_node, give_key

_RELEASES = ("20.11", "21.08", "22.05", "23.02", "23.11", "24.05", "24.11", "25.05", "25.11", "26.05")
_SINCE_THREE = "24.11"
"""From this release on daemons of three older ones are served, before it of two (upgrades.html)."""

_LOW = re.compile(r"^Low (\S+)")
_AWAY = ("DOWN", "NOT_RESPONDING", "FAIL")
_KEPT = ("DRAIN", "DRAINING", "DRAINED")
_ASLEEP = ASLEEP | {"REBOOT_ISSUED"}
_START_TROUBLE = re.compile(r"cgroup|plugin|dlopen", re.IGNORECASE)
_NO_SUCH_NODE = re.compile(r"Unable to (?:find node record for (\S+)|determine this slurmd's NodeName)")
_SILENT = re.compile(r"^exit status 0;.* got no output")
_FATAL = re.compile(r"fatal|cannot|can't|couldn't|unable|failed", re.IGNORECASE)


def unreachable(evidence: Evidence) -> Iterator[Verdict]:
    """Yield nodes that give no sign of life at all, or have no address."""
    for node, peer in _peers(evidence).items():
        if peer["outcome"] == "unresolvable":
            yield Verdict(
                code=Code.NAME_DOES_NOT_RESOLVE,
                node=HEAD,
                sentence=f"on the head the name {peer['address']} does not resolve: slurmctld has it as the address of "
                f"{node}.",
                change=f"Make it resolve there (getent hosts {peer['address']}), or give the node a NodeAddr.",
            )
        elif peer["outcome"] in ("timeout", "unreachable") and not _alive(evidence, node):
            yield Verdict(
                code=Code.NODE_UNREACHABLE,
                node=node,
                sentence=f"{node} ({peer['address']}) gives no sign of life: no answer from TCP "
                f"{', '.join(map(str, peer['tried']))} nor to ping{_link(peer)}. It is stopped, or cut off from the "
                f"head altogether; slurmctld has it as {peer['state']}.",
                change="See whether the machine runs (aws ec2 describe-instances --filters "
                f"Name=private-ip-address,Values={peer['where']}). If it does, look at subnet, routes and network "
                "ACLs before Slurm's rules.",
            )


def _link(peer: Mapping[str, Any]) -> str:
    return ", and the kernel finds no machine at that address" if peer["outcome"] == "unreachable" else ""


def _peers(evidence: Evidence) -> dict[str, dict[str, Any]]:
    return evidence.fact(HEAD, "peers") or {}


def _alive(evidence: Evidence, node: str) -> str:
    found: dict[str, str] = evidence.fact(HEAD, "alive") or {}
    return found.get(node, "")


def refused_messages(evidence: Evidence) -> Iterator[Verdict]:
    """Yield nodes whose messages slurmctld cannot authenticate, by its log; none that have since shown they can."""
    refused = evidence.fact(HEAD, "refused") or {}
    for node, found in refused.items():
        if (evidence.met(node, "credential") or {}).get("decoded"):
            continue
        if found["kind"] == "clock":
            off = f" by about {found['skew']} seconds" if found["skew"] else ""
            yield Verdict(
                code=Code.CLOCK_DIFFERS,
                node=node,
                sentence=f"the clocks of {node} and of the head differ{off}: slurmctld refuses its messages, "
                f"'{found['line']}'. No port is involved.",
                change=SET_CLOCKS,
            )
        elif found["kind"] == "key":
            odd = HEAD if len(refused) > 1 and set(refused) >= set(evidence.workers) else node
            yield Verdict(
                code=Code.MUNGE_KEY_DIFFERS,
                node=odd,
                sentence=f"slurmctld cannot authenticate the messages of {node}: '{found['line']}'. Their munge keys "
                f"differ{'; so it is with every worker, so the odd one is probably the head' if odd == HEAD else ''}. "
                "No port is involved.",
                change=give_key(evidence, odd),
            )
        elif found["kind"] == "version":
            yield Verdict(
                code=Code.VERSION_MISMATCH,
                node=node,
                sentence=f"slurmctld does not understand the messages of {node}: '{found['line']}'. Their releases of "
                "Slurm are too far apart.",
                change="Install one release on both; where they must differ, slurmctld's is the newer one.",
            )


def ignored_messages(evidence: Evidence) -> Iterator[Verdict]:
    """Yield nodes whose slurmd ends slurmctld's connections without an answer, as it does where it trusts no message.

    Key and clock look alike from the head: slurmd's own log has munge's word.
    """
    for node, found in (evidence.fact(HEAD, "hung_up") or {}).items():
        peer = _peers(evidence).get(node, {})
        if peer.get("outcome") != "open" or (evidence.met(node, "credential") or {}).get("decoded"):
            continue
        yield Verdict(
            code=Code.MESSAGES_REFUSED,
            node=node,
            sentence=f"slurmd of {node} takes connections from the head and ends them without an answer to a message: "
            f"'{found['line']}'. So it does where it cannot authenticate slurmctld: its munge has another key, or is "
            "down, or its clock differs by minutes. The way there is open; no port is involved.",
            change=f"`journalctl -u slurmd | grep -i munge` on {node} tells which: 'Invalid credential' is the key, "
            "'Expired' or 'Rewound' the clock. Give it the head's /etc/munge/munge.key, or the right time, and restart "
            "munge and slurmd there.",
        )


def releases(evidence: Evidence) -> Iterator[Verdict]:
    """Yield nodes whose slurmd is of a release that slurmctld does not serve."""
    head = evidence.fact(HEAD, "slurm_version") or ""
    for node in evidence.workers:
        own = _version(str(evidence.fact(node, "release") or "")) or _row(evidence, node).get("version", "")
        if head and own and (wrong := _mismatch(head, own)):
            yield Verdict(
                code=Code.VERSION_MISMATCH,
                node=node,
                sentence=f"slurmd of {node} is Slurm {own}, slurmctld is {head}: {wrong}.",
                change="Install one release on both, slurmctld first; an older slurmd may stay for the time of an "
                "upgrade only.",
            )


def _version(text: str) -> str:
    found = re.search(r"\d+\.\d+\.\d+\S*", text)
    return found[0] if found else ""


def _mismatch(head: str, own: str) -> str:
    ours, theirs = ".".join(head.split(".")[:2]), ".".join(own.split(".")[:2])
    if ours == theirs:
        return ""
    if _key(theirs) > _key(ours):
        return "a slurmd must never be newer than slurmctld"
    if ours not in _RELEASES or theirs not in _RELEASES:
        return ""
    apart, most = _RELEASES.index(ours) - _RELEASES.index(theirs), 3 if _key(ours) >= _key(_SINCE_THREE) else 2
    return f"it is {apart} releases older, and {ours} serves {most}" if apart > most else ""


def _key(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", release)[:2])


def configurations(evidence: Evidence) -> Iterator[Verdict]:
    """Yield machines whose slurm.conf is not the one that slurmctld runs with, unless the site says that they may."""
    if "no_conf_hash" in str(evidence.fact(HEAD, "debug_flags") or "").lower():
        return
    for node in evidence.machines:
        found = evidence.fact(node, "configuration")
        if found and not found["match"]:
            lines = "; ".join(found["differences"])
            what = f": {lines}" if lines else ""
            yield _config_differs(
                node,
                f"{found['file']} of {label(node)} is not what slurmctld runs with (HASH_VAL of `scontrol show config`)"
                + (", it was changed and not loaded since." if node == HEAD else f"{what}."),
            )
    for node, line in (evidence.fact(HEAD, "other_conf") or {}).items():
        # what the machine itself says now counts more than what it registered with
        if not evidence.fact(node, "configuration"):
            yield _config_differs(node, f"slurmctld's log has of its last registration: '{line}'.")


def _config_differs(node: str, sentence: str) -> Verdict:
    return Verdict(
        code=Code.CONFIG_DIFFERS,
        node=node,
        sentence=sentence,
        change="Run `scontrol reconfigure`."
        if node == HEAD
        else f"Give {node} the head's slurm.conf and restart slurmd there; better, have slurmd fetch it "
        "(SlurmctldParameters=enable_configless, slurmd --conf-server HEAD:6817).",
    )


def unknown_names(evidence: Evidence) -> Iterator[Verdict]:
    """Yield slurmds that do not start as slurm.conf has no node of the name that they go by."""
    for node in evidence.workers:
        for line in _left_by_daemon(evidence, node):
            if said := _NO_SUCH_NODE.search(line):
                name = said[1] or "its host name"
                yield Verdict(
                    code=Code.NODE_NAME_UNKNOWN,
                    node=node,
                    sentence=f"slurmd of {node} does not start: it goes by the name {name}, and slurm.conf has no node "
                    f"of that name: '{said[0]}'.",
                    change=f"Start it with the name that its NodeName line has: slurmd -N {node} (SLURMD_OPTIONS in "
                    "/etc/default/slurmd or /etc/sysconfig/slurmd), or correct slurm.conf.",
                )
                break


def starts(evidence: Evidence) -> Iterator[Verdict]:
    """Yield daemons that do not run because a plugin of theirs, cgroup's above all, does not start."""
    for node in evidence.machines:
        if said := _start_trouble(_left_by_daemon(evidence, node)):
            name = f"{daemon_of(node)} of {label(node)}"
            yield _start_failed(node, f"{name} does not start, a plugin of it fails: {said}.")
    for node, visit in _visits(evidence).items():
        if visit["how"] == "failed" and (said := _start_trouble(visit.get("log", ()))):
            yield _start_failed(node, f"a job does not start on {node}, a plugin fails: {said}.")


def _left_by_daemon(evidence: Evidence, node: str) -> list[str]:
    """Return the last texts that a machine's daemon of Slurm wrote, none if it runs or is not known."""
    unit = evidence.fact(node, "slurm")
    if not unit or unit["active"] == "active":
        return []
    return [unit["journal"], *(evidence.fact(node, "log") or ())]


def _start_trouble(texts: Iterable[str]) -> str:
    """Return the first line that tells of a plugin which fails; a journal has its lines in one text."""
    lines = (line for text in texts for line in re.split(r"\n| \| ", text))
    return next((line for line in lines if _START_TROUBLE.search(line) and _FATAL.search(line)), "")


def _start_failed(node: str, sentence: str) -> Verdict:
    return Verdict(
        code=Code.DAEMON_START_FAILED,
        node=node,
        sentence=sentence,
        change=f"On {label(node)}: `slurmd -D -vvv` (slurmctld -D -vvv) shows it. cgroup: the kernel must offer the "
        "controllers that cgroup.conf asks for, slurmd's unit needs Delegate=yes, and proctrack/cgroup and task/cgroup "
        "go together; a plugin that is not found belongs to a package that is missing or of another release.",
    )


def hung_daemons(evidence: Evidence) -> Iterator[Verdict]:
    """Yield nodes whose slurmd takes connections and never answers."""
    for node, peer in _peers(evidence).items():
        if peer["outcome"] == "open" and peer["answers"] is False:
            yield Verdict(
                code=Code.SLURMD_HUNG,
                node=node,
                sentence=f"slurmd of {node} hangs: the kernel there accepts connections to TCP "
                f"{evidence.ports.slurmd}, and slurmd did nothing with one for {peer['seconds']:.0f} seconds. The way "
                f"there is open; slurmctld has the node as {peer['state']}.",
                change=f"On {node}: `systemctl restart slurmd` (jobs go on); before it `cat /proc/$(pgrep -x "
                "slurmd)/stack` shows what it waits for, often a hung mount.",
            )


def accounting(evidence: Evidence) -> Iterator[Verdict]:
    """Yield a slurmdbd that slurmctld is told to use and cannot be reached from the head."""
    found = evidence.fact(HEAD, "slurmdbd")
    if found and found["outcome"] != "open":
        how = {
            "refused": "nothing listens there: it is down, and the way there is open",
            "unresolvable": "its name does not resolve",
        }.get(found["outcome"], "no answer: the machine is stopped, or TCP there is closed to the head")
        yield Verdict(
            code=Code.SLURMDBD_DOWN,
            node=HEAD,
            sentence=f"slurmctld keeps accounts in slurmdbd at {found['host']}:{found['port']}, and {how}. Jobs run "
            "on; their records wait in slurmctld's memory, and sacct and sacctmgr fail.",
            change=f"On {found['host']}: systemctl restart slurmdbd; journalctl -u slurmdbd (its database may be "
            f"down); it must accept TCP {found['port']} from the head.",
        )


def jobs(evidence: Evidence) -> Iterator[Verdict]:
    """Yield nodes on which a job of the doctor was launched and did not run."""
    for node, visit in _visits(evidence).items():
        if visit["how"] == "failed":
            lines = visit.get("log", ())
            said = f" slurmctld's log: '{lines[-1]}'." if lines else ""
            yield Verdict(
                code=Code.JOB_LAUNCH_FAILED,
                node=node,
                sentence=f"a job of one task on {node} ended without having run: {visit['why']}.{said}",
                change=f"Look at slurmd's log on {node} for job {visit.get('job', '')}: usual are a prolog that fails, "
                "a spool directory that cannot be written, a user that the node does not know, or a plugin.",
            )


def silent_srun(evidence: Evidence) -> Iterator[Verdict]:
    """Yield launches of the gate that ended well and printed nothing, where no connection explains it."""
    for check in (evidence.gate or {}).get("checks", ()):
        if check["passed"] is False and check["name"].startswith("srun") and _SILENT.search(check["detail"]):
            yield Verdict(
                code=Code.SRUN_SILENT,
                node="" if len(check["nodes"]) > 1 else check["nodes"][0],
                sentence=f"{check['name']}: srun ended with exit status 0 and printed nothing of what its tasks on "
                f"{', '.join(check['nodes'][:4])} should have said, and every connection that it needs could be opened:"
                " the network is not why.",
                change="See on the head which srun is run (type -a srun), and what handles its output: cli_filter and "
                "SPANK plugins (plugstack.conf), TaskProlog, a wrapper. Its exit status proves nothing: before Slurm "
                "26.05.2 it is 0 although no task was started.",
            )


def silent_jobs(evidence: Evidence) -> Iterator[Verdict]:
    """Yield nodes on which a job runs whose answer does not come, as far as blocked connections do not explain it."""
    watching = (evidence.met(HEAD, "meeting") or {}).get("watching")
    for node, visit in _visits(evidence).items():
        if visit["how"] != "silent" or not watching:
            continue
        port = evidence.ports.slurmctld
        if evidence.met(node, "meeting"):
            saw = f"its connections to TCP {port} of the head arrive, but no command of Slurm there gets through"
            change = (
                f"On {node}: `scontrol ping`. Usual are a name of the head that does not resolve there (getent hosts), "
                "a munge that is down or has another key, or that Slurm's commands are not installed."
            )
        else:
            saw = (
                f"of the connections that it opens to the head none arrives, neither to TCP {port} nor to srun's ports"
            )
            change = (
                f"On {node}: `scontrol ping`. If it finds slurmctld down, open TCP {port} and {evidence.ports.srun} of "
                "the head to the workers; if not, see what hangs there (ps, mounts)."
            )
        yield Verdict(
            code=Code.WORKER_SILENT,
            node=node,
            sentence=f"a job runs on {node} and does not answer ({visit['why']}): {saw}.",
            change=change,
        )


def _visits(evidence: Evidence) -> dict[str, Mapping[str, Any]]:
    """Return how workers were reached, see doctor.visits."""
    return {node: found for node in evidence.workers if (found := evidence.answers.get(f"visit:{node}"))}


def node_states(evidence: Evidence) -> Iterator[Verdict]:
    """Yield nodes that slurmctld gives no jobs, with the reason that it has for it."""
    for node, row in (evidence.fact(HEAD, "nodes") or {}).items():
        flags = set(row["state"].split("+"))
        if flags & _ASLEEP or "INVALID_REG" in flags:
            continue
        reason = row["reason"] or "none given"
        # the reason of a fault that was mended stays
        if (low := _LOW.match(row["reason"])) and flags & {*_AWAY, *_KEPT}:
            yield Verdict(
                code=Code.NODE_REFUSED,
                node=node,
                sentence=f"slurmctld does not use {node} ({row['state']}): {row['reason']}: the machine has less "
                f"{low[1]} than its NodeName line promises.",
                change=fit_node(evidence, node),
            )
        elif flags & set(_AWAY):
            yield Verdict(
                code=Code.NODE_DOWN,
                node=node,
                sentence=f"slurmctld has {node} as {row['state']}, reason: {reason}.",
                change=f"If nothing else here explains it: `systemctl status slurmd` on {node}, then `scontrol update "
                f"nodename={node} state=resume`.",
            )
        elif flags & set(_KEPT) and SPOOL_FULL not in reason:
            yield Verdict(
                code=Code.NODE_DRAINED,
                node=node,
                sentence=f"{node} is drained ({row['state']}), reason: {reason}. slurmctld gives it no new jobs.",
                change=f"When the reason no longer holds: scontrol update nodename={node} state=resume",
            )


def _row(evidence: Evidence, node: str) -> dict[str, str]:
    found: dict[str, str] = (evidence.fact(HEAD, "nodes") or {}).get(node, {})
    return found

"""Verdicts on what only the doctor finds out, each from its evidence, and none from what looks like it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from slurm_cluster.runtime.evidence import HEAD, Machine
from slurm_cluster.runtime.verdict import Code, Verdict, findings
from tests.unit.verdict_cases import FIRST, SECOND, STOPPED_UNIT, Case

MIB = 2**20


class Foreign(Case):
    """A healthy cluster of two workers that this package did not make, as the doctor sees it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = None
        self.machines = {node: Machine(instance_id="") for node in self.machines}
        self.visits: dict[str, dict[str, Any]] = {}
        for node, facts in self.facts.items():
            del facts["status"]
            facts |= {"disks": [room()], "hung": [], "read_only": [], "configuration": {"match": True}}
            if node != HEAD:
                facts |= {"release": "slurm-wlm 24.11.5", "skew": 0.4}
        self.facts[HEAD] |= {
            "peers": {FIRST: peer(), SECOND: peer()},
            "alive": {HEAD: "the doctor runs there", FIRST: "TCP 6818 is open", SECOND: "TCP 6818 is open"},
            "nodes": {FIRST: row(), SECOND: row()},
            "slurm_version": "24.11.5",
            "refused": {},
            "other_conf": {},
            "debug_flags": "",
            "slurmdbd": None,
        }

    def found(self) -> list[tuple[Code, str]]:
        return [(verdict.code, verdict.node) for verdict in self.verdicts()]

    def verdicts(self) -> list[Verdict]:
        evidence = self.evidence().with_answers({f"visit:{node}": visit for node, visit in self.visits.items()})
        return findings(type(evidence)(**{**vars(evidence), "foreign": True}))

    def unvisited(self, node: str) -> None:
        """Nothing is known of a worker but what the head sees."""
        self.facts[node] = {"address": self.facts[node]["address"]}
        self.meetings[node] = {}


def room(available: int = 9000 * MIB, inodes_free: int = 100_000) -> dict[str, Any]:
    return {
        "path": "/var/log",
        "mount": "/",
        "available": available,
        "size": 10_000 * MIB,
        "inodes_free": inodes_free,
        "inodes": 600_000,
    }


def peer(outcome: str = "open", *, answers: bool | None = True) -> dict[str, Any]:
    return {
        "address": "cpu-1",
        "where": "10.0.0.11",
        "state": "IDLE",
        "outcome": outcome,
        "answers": answers,
        "seconds": 6.0,
        "tried": [6818, 22, 32768],
        "alive": "",
    }


def row(state: str = "IDLE", reason: str = "", version: str = "24.11.5") -> dict[str, str]:
    return {"state": state, "reason": reason, "host": "h", "address": "a", "version": version}


def test_a_healthy_cluster_has_no_fault() -> None:
    assert Foreign().found() == []


def full_disk(case: Foreign) -> None:
    case.facts[FIRST]["disks"] = [room(available=1000)]


def no_inodes(case: Foreign) -> None:
    case.facts[HEAD]["disks"] = [room(inodes_free=3)]


def hung_mount(case: Foreign) -> None:
    case.facts[FIRST]["hung"] = [{"mount": "/home", "device": "fs-1:/", "kind": "nfs4"}]


def read_only(case: Foreign) -> None:
    mount = {"mount": "/", "device": "/dev/nvme0n1p1", "kind": "ext4", "why": "/var/log lies on it"}
    case.facts[SECOND]["read_only"] = [mount]


def skewed(case: Foreign) -> None:
    case.facts[FIRST]["skew"] = -170.0


def refused_for_its_clock(case: Foreign) -> None:
    case.unvisited(FIRST)
    case.facts[HEAD]["refused"] = {
        FIRST: {"kind": "clock", "line": "Expired credential", "skew": 600, "when": 1.0},
    }
    case.facts[HEAD]["nodes"][FIRST] = row("DOWN+NOT_RESPONDING", "Not responding")


def refused_for_its_key(case: Foreign) -> None:
    refused_for_its_clock(case)
    case.facts[HEAD]["refused"][FIRST] |= {"kind": "key", "line": "Invalid credential", "skew": 0}


def newer_slurmd(case: Foreign) -> None:
    case.facts[FIRST]["release"] = "slurm 25.05.1"


def far_older_slurmd(case: Foreign) -> None:
    case.facts[FIRST]["release"] = "slurm-wlm 22.05.8"


def refused_for_its_release(case: Foreign) -> None:
    refused_for_its_clock(case)
    case.facts[HEAD]["refused"][FIRST] |= {"kind": "version", "line": "Incompatible versions of client and server code"}


def other_conf(case: Foreign) -> None:
    case.facts[FIRST]["configuration"] = {"match": False, "file": "/etc/slurm/slurm.conf", "differences": ["+ A=1"]}


def other_conf_at_registration(case: Foreign) -> None:
    case.unvisited(FIRST)
    case.facts[HEAD]["other_conf"] = {FIRST: f"Node {FIRST} appears to have a different slurm.conf"}


def not_reloaded(case: Foreign) -> None:
    case.facts[HEAD]["configuration"] = {"match": False, "file": "/etc/slurm/slurm.conf", "differences": []}


def hung_slurmd(case: Foreign) -> None:
    case.unvisited(FIRST)
    case.facts[HEAD]["peers"][FIRST] = peer(answers=False)


def dead_slurmd(case: Foreign) -> None:
    case.connection(HEAD, FIRST, 6818, "refused")
    case.unvisited(FIRST)
    case.facts[HEAD]["peers"][FIRST] = peer("refused", answers=None)
    case.facts[HEAD]["nodes"][FIRST] = row("DOWN+NOT_RESPONDING", "Not responding")


def other_port(case: Foreign) -> None:
    dead_slurmd(case)
    case.facts[HEAD]["peers"][FIRST]["elsewhere"] = [16818]


def no_life(case: Foreign) -> None:
    for port in (6818, 1024, 33279, 65535):
        case.connection(HEAD, FIRST, port, "timeout")
    case.unvisited(FIRST)
    case.facts[HEAD]["peers"][FIRST] = peer("timeout", answers=None)
    del case.facts[HEAD]["alive"][FIRST]
    case.facts[HEAD]["nodes"][FIRST] = row("DOWN+NOT_RESPONDING", "Not responding")


def no_address(case: Foreign) -> None:
    case.unvisited(FIRST)
    case.facts[HEAD]["peers"][FIRST] = peer("unresolvable", answers=None)


def plugin_on_head(case: Foreign) -> None:
    said = "fatal: cannot create auth plugin for auth/none"
    case.facts[HEAD] |= {"slurm": {**STOPPED_UNIT, "active": "failed", "journal": said}, "controller": False}


def cgroup_on_worker(case: Foreign) -> None:
    said = "fatal: /sys/fs/cgroup is not a valid cgroup2 mountpoint, cgroup plugin failed"
    case.facts[FIRST] |= {"slurm": {**STOPPED_UNIT, "active": "failed", "journal": said}}


def no_dbd(case: Foreign) -> None:
    case.facts[HEAD]["slurmdbd"] = {"host": "db", "port": 6819, "outcome": "refused"}


def no_word(case: Foreign) -> None:
    job_silent(case)
    line = "error: slurm_receive_msgs: [[n1]:41498] failed: Zero Bytes were transmitted or received"
    case.facts[HEAD]["hung_up"] = {FIRST: {"line": line, "when": 1.0}}


def other_name(case: Foreign) -> None:
    dead_slurmd(case)
    said = "error: Unable to find node record for cpu-9"
    case.facts[FIRST]["slurm"] = {**STOPPED_UNIT, "active": "failed", "journal": said}


def full_spool(case: Foreign) -> None:
    case.unvisited(FIRST)
    reason = "SlurmdSpoolDir is full [root@2026-01-01T00:00:00]"
    case.visits[FIRST] = {"how": "failed", "why": "job 7 is FAILED", "job": "7", "log": [], "drained": reason}


def full_spool_before(case: Foreign) -> None:
    case.unvisited(FIRST)
    case.facts[HEAD]["nodes"][FIRST] = row("IDLE+DRAIN", "SlurmdSpoolDir is full [root@2026-01-01T00:00:00]")


def job_failed(case: Foreign) -> None:
    case.unvisited(FIRST)
    case.visits[FIRST] = {"how": "failed", "why": "job 7 is FAILED", "job": "7", "log": ["error: Prolog failed"]}


def job_silent(case: Foreign) -> None:
    case.unvisited(FIRST)
    case.visits[FIRST] = {"how": "silent", "why": "nothing comes back", "job": "7", "log": []}


def few_ports(case: Foreign) -> None:
    case.facts[HEAD]["srun_ports"] = {"range": "60001-60003", "size": 3, "enough": 4, "free": 3}


def drained(case: Foreign) -> None:
    case.facts[HEAD]["nodes"][FIRST] = row("IDLE+DRAIN", "bad dimm [root@2026-01-01T00:00:00]")


def low_memory(case: Foreign) -> None:
    reason = "Low RealMemory (reported:3800 < 100.00% of configured:4000) [slurm@2026-01-01T00:00:00]"
    case.facts[HEAD]["nodes"][FIRST] = row("IDLE+DRAIN", reason)


def invalid_registration(case: Foreign) -> None:
    case.facts[HEAD]["nodes"][FIRST] = row("DOWN+INVALID_REG", "Low RealMemory (reported:3800 < ...)")


def set_down(case: Foreign) -> None:
    case.facts[HEAD]["nodes"][FIRST] = row("DOWN", "Not responding")


def agent_down(case: Foreign) -> None:
    case.facts[FIRST]["ssm_agent"] = {**STOPPED_UNIT, "active": "failed"}


def no_munge(case: Foreign) -> None:
    case.facts[HEAD] |= {"munge": {**STOPPED_UNIT}, "controller": False}


def other_cluster_name(case: Foreign) -> None:
    said = (
        "fatal: CLUSTER NAME MISMATCH (e.g., the ClusterName has changed). | slurmctld.service: Failed with result "
        "'exit-code'. | Failed to start slurmctld.service - Slurm controller daemon."
    )
    case.facts[HEAD] |= {"slurm": {**STOPPED_UNIT, "active": "failed", "journal": said}, "controller": False}


FAULTS: list[tuple[Callable[[Foreign], None], Code, str, str]] = [
    (full_disk, Code.DISK_FULL, FIRST, "KiB of 10000 MiB are free"),
    (no_inodes, Code.DISK_FULL, HEAD, "3 of 600000 inodes are free"),
    (hung_mount, Code.MOUNT_HUNG, FIRST, "/home of cpu-static-1 (fs-1:/, nfs4) hangs"),
    (read_only, Code.MOUNT_READ_ONLY, SECOND, "/var/log lies on it"),
    (skewed, Code.CLOCK_DIFFERS, FIRST, "at least 170 seconds behind"),
    (refused_for_its_clock, Code.CLOCK_DIFFERS, FIRST, "by about 600 seconds"),
    (refused_for_its_key, Code.MUNGE_KEY_DIFFERS, FIRST, "No port is involved"),
    (newer_slurmd, Code.VERSION_MISMATCH, FIRST, "must never be newer"),
    (far_older_slurmd, Code.VERSION_MISMATCH, FIRST, "4 releases older, and 24.11 serves 3"),
    (refused_for_its_release, Code.VERSION_MISMATCH, FIRST, "Incompatible versions"),
    (other_conf, Code.CONFIG_DIFFERS, FIRST, "+ A=1"),
    (other_conf_at_registration, Code.CONFIG_DIFFERS, FIRST, "last registration"),
    (not_reloaded, Code.CONFIG_DIFFERS, HEAD, "not loaded since"),
    (hung_slurmd, Code.SLURMD_HUNG, FIRST, "The way there is open"),
    (dead_slurmd, Code.SLURMD_DOWN, FIRST, "it refused a connection from head"),
    (other_port, Code.DAEMON_PORT_DIFFERS, FIRST, "listens on TCP 16818, and is looked for on TCP 6818"),
    (other_name, Code.NODE_NAME_UNKNOWN, FIRST, "the name cpu-9"),
    (no_word, Code.MESSAGES_REFUSED, FIRST, "no port is involved"),
    (full_spool, Code.DISK_FULL, FIRST, "SlurmdSpoolDir on cpu-static-1 is full"),
    (full_spool_before, Code.DISK_FULL, FIRST, "drained the node with the reason"),
    (no_life, Code.NODE_UNREACHABLE, FIRST, "no sign of life"),
    (no_address, Code.NAME_DOES_NOT_RESOLVE, HEAD, "the name cpu-1 does not resolve"),
    (plugin_on_head, Code.DAEMON_START_FAILED, HEAD, "auth plugin"),
    (other_cluster_name, Code.SLURMCTLD_DOWN, HEAD, "the ClusterName has changed"),
    (cgroup_on_worker, Code.DAEMON_START_FAILED, FIRST, "cgroup2 mountpoint"),
    (no_dbd, Code.SLURMDBD_DOWN, HEAD, "it is down, and the way there is open"),
    (job_failed, Code.JOB_LAUNCH_FAILED, FIRST, "Prolog failed"),
    (job_silent, Code.WORKER_SILENT, FIRST, "none arrives"),
    (few_ports, Code.SRUN_PORTS_EXHAUSTED, HEAD, "no firewall is involved"),
    (drained, Code.NODE_DRAINED, FIRST, "bad dimm"),
    (low_memory, Code.NODE_REFUSED, FIRST, "less RealMemory than its NodeName line promises"),
    (invalid_registration, Code.NODE_REFUSED, FIRST, "slurmctld refuses the registration"),
    (set_down, Code.NODE_DOWN, FIRST, "Not responding"),
    (agent_down, Code.SSM_AGENT_DOWN, FIRST, "Slurm does not need it"),
    (no_munge, Code.MUNGE_DOWN, HEAD, "munge on the head does not run"),
]


@pytest.mark.parametrize(("fault", "code", "node", "words"), FAULTS, ids=lambda item: getattr(item, "__name__", ""))
def test_each_fault_gets_its_own_verdict_and_no_other(
    fault: Callable[[Foreign], None], code: Code, node: str, words: str
) -> None:
    case = Foreign()
    fault(case)
    assert case.found() == [(code, node)]
    (verdict,) = case.verdicts()
    assert words in verdict.sentence
    assert verdict.change
    assert len(verdict.reason) <= 600
    for alien in ("sg-", "slurm-cluster ", "the stack", "i-0"):
        assert alien not in verdict.reason, "the cluster was not made by this package"


def test_no_fault_of_a_host_is_put_down_to_the_network_nor_the_reverse() -> None:
    codes = {code for _, code, _, _ in FAULTS}
    assert not {code for code in codes if code.endswith("-blocked")}


def test_an_old_enough_release_is_no_fault_and_a_site_may_have_other_files() -> None:
    case = Foreign()
    case.facts[FIRST]["release"] = "slurm-wlm 23.11.4"
    other_conf(case)
    case.facts[HEAD]["debug_flags"] = "Steps,NO_CONF_HASH"
    assert case.found() == []


@pytest.mark.parametrize("reason", ["Low RealMemory (reported:1 < 2)", "SlurmdSpoolDir is full", "bad dimm"])
def test_the_reason_of_what_was_mended_is_no_fault(reason: str) -> None:
    case = Foreign()
    case.unvisited(FIRST)
    case.facts[HEAD]["nodes"][FIRST] = row("ALLOCATED", f"{reason} [slurm@2026-01-01T00:00:00]")
    assert case.found() == []


def test_two_slurmds_that_are_down_are_named_both() -> None:
    case = Foreign()
    dead_slurmd(case)
    case.connection(HEAD, SECOND, 6818, "refused")
    case.unvisited(SECOND)
    assert case.found() == [(Code.SLURMD_DOWN, FIRST), (Code.SLURMD_DOWN, SECOND)]


def test_nodes_that_sleep_are_no_fault() -> None:
    case = Foreign()
    case.facts[HEAD]["nodes"][FIRST] = row("DOWN+CLOUD+POWERED_DOWN", "")
    assert case.found() == []


def test_a_worker_that_shows_life_and_does_not_answer_on_6818_is_cut_off_on_that_port() -> None:
    case = Foreign()
    no_life(case)
    case.facts[HEAD]["alive"][FIRST] = "TCP 22 answers"
    case.facts[HEAD]["peers"][FIRST]["alive"] = "TCP 22 answers"
    assert case.found()[0] == (Code.NODE_RPC_BLOCKED, FIRST)
    assert Code.NODE_UNREACHABLE not in {code for code, _ in case.found()}


def test_where_neither_end_could_look_the_flow_is_named_and_the_place_left_open() -> None:
    case = Foreign()
    for node in (FIRST, SECOND):
        for port in (1024, 33279, 65535):
            case.connection(node, HEAD, port, "timeout", arrived=False, left=None)
    case.meetings[HEAD]["meeting"]["watching"] = False
    (verdict,) = case.verdicts()
    assert verdict.code is Code.SRUN_IO_BLOCKED
    assert "on the way, or by a packet filter of either" in verdict.sentence


def test_a_job_that_fails_is_explained_by_what_is_wrong_below_it() -> None:
    case = Foreign()
    job_failed(case)
    full_disk(case)
    case.facts[FIRST]["disks"] = [room(available=0)]
    assert case.found() == [(Code.DISK_FULL, FIRST)]


def test_a_fault_of_the_head_that_no_worker_feels_explains_none_of_theirs() -> None:
    case = Foreign()
    job_failed(case)
    no_inodes(case)
    assert case.found() == [(Code.DISK_FULL, HEAD), (Code.JOB_LAUNCH_FAILED, FIRST)]


def test_when_every_worker_is_refused_the_odd_one_is_the_head() -> None:
    case = Foreign()
    for node in (FIRST, SECOND):
        case.unvisited(node)
        case.facts[HEAD]["refused"][node] = {"kind": "key", "line": "Invalid credential", "skew": 0, "when": 1.0}
    assert set(case.found()) == {(Code.MUNGE_KEY_DIFFERS, HEAD)}


def test_a_worker_that_reads_the_heads_credential_is_refused_no_more() -> None:
    case = Foreign()
    case.facts[HEAD]["refused"] = {FIRST: {"kind": "key", "line": "Invalid credential", "skew": 0, "when": 1.0}}
    assert case.found() == []

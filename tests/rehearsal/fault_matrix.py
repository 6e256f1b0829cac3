"""The faults of a live cluster: how each is made and mended, and what must be said of it.

Faults of one round are made at the same time, each on a machine of its own or in flows of its own: so they are also
told apart from each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from slurm_cluster.runtime.verdict import Code
from tests.rehearsal import breakage_scripts as script
from tests.rehearsal.breakage import (
    Breakage,
    bootstrapping,
    closing,
    in_slurm_conf,
    lacking,
    nested,
    other_clock,
    restarting,
    resumed,
    scripts,
    without_agent,
    without_data_source,
)

HEAD, FIRST, SECOND, THIRD = "head", "cpu-static-1", "cpu-static-2", "cpu-static-3"


class Asked(StrEnum):
    """Who is asked what is wrong."""

    DOCTOR = "slurm-doctor"
    WATCH = "smoke test, waiting"
    """By what agents, consoles and bootstraps say."""

    PROBES = "smoke test, probing"
    TEST = "smoke test"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault.

    Args:
        name: what is wrong, for people.
        broken: breaks and mends it.
        code: the verdict that it must get.
        node: the machine that the verdict must name.
        words: part of the verdict's sentence.
        besides: verdicts that may follow, as they are true too.
    """

    name: str
    broken: Breakage
    code: Code
    node: str
    words: str
    besides: tuple[Code, ...] = ()

    @property
    def of_network(self) -> bool:
        """Whether the network is what is wrong."""
        return is_of_network(self.code)


@dataclass(frozen=True, kw_only=True)
class Round:
    """Faults that are there at the same time.

    Args:
        faults: each on another machine, or in another flow.
        asked: who is asked.
    """

    faults: tuple[Fault, ...]
    asked: Asked = Asked.DOCTOR

    @property
    def name(self) -> str:
        """Its faults."""
        return " and ".join(fault.name for fault in self.faults)


def is_of_network(code: Code) -> bool:
    """Return whether a verdict blames the network: security groups, routes, packet filters."""
    return code.endswith("-blocked") or code in (Code.HOST_FIREWALL, Code.NODE_UNREACHABLE)


def _closed(flow_id: str, code: Code, words: str = "") -> Fault:
    return Fault(
        name=f"{flow_id} closed", broken=closing(flow_id), code=code, node=FIRST, words=words or f"{flow_id}: "
    )


def _doctor(*faults: Fault) -> Round:
    return Round(faults=faults)


def _watch(*faults: Fault) -> Round:
    return Round(faults=faults, asked=Asked.WATCH)


_SIGNAL = "systemctl kill --signal={} slurmd"

ROUNDS = (
    _doctor(
        _closed("controller-rpc", Code.CONTROLLER_RPC_BLOCKED),
        _closed("message-tree", Code.WORKER_TO_WORKER_BLOCKED),
    ),
    _doctor(_closed("node-rpc", Code.NODE_RPC_BLOCKED)),
    _doctor(_closed("srun-io", Code.SRUN_IO_BLOCKED, "while TCP 6817 there answers")),
    _doctor(
        _closed("srun-io-in-job", Code.WORKER_TO_WORKER_BLOCKED),
        _closed("controller-to-srun-in-job", Code.HEAD_TO_WORKER_BLOCKED),
    ),
    _doctor(
        Fault(
            name="munge key differs",
            broken=nested(restarting(FIRST), scripts(FIRST, script.OTHER_KEY, script.OWN_KEY), restarting(FIRST)),
            code=Code.MUNGE_KEY_DIFFERS,
            node=FIRST,
            words="Their munge keys differ",
        ),
        Fault(
            name="clock off by 10 minutes",
            broken=nested(restarting(SECOND), other_clock(SECOND), restarting(SECOND)),
            code=Code.CLOCK_DIFFERS,
            node=SECOND,
            words="by about 600 seconds",
        ),
        Fault(
            name="slurmd stopped",
            broken=scripts(THIRD, "systemctl stop slurmd", "systemctl start slurmd"),
            code=Code.SLURMD_DOWN,
            node=THIRD,
            words="the way there is open and slurmd is not",
        ),
    ),
    _doctor(
        Fault(
            name="munge key changed under a running slurmd",
            broken=nested(restarting(FIRST), scripts(FIRST, script.OTHER_KEY, script.OWN_KEY)),
            code=Code.MESSAGES_REFUSED,
            node=FIRST,
            words="cannot authenticate slurmctld",
        ),
        Fault(
            name="slurm.conf differs",
            broken=scripts(
                THIRD,
                "echo DebugFlags=Steps >> /run/slurm/conf/slurm.conf",
                "sed -i '$d' /run/slurm/conf/slurm.conf",
            ),
            code=Code.CONFIG_DIFFERS,
            node=THIRD,
            words="+ DebugFlags=Steps",
        ),
    ),
    _doctor(
        Fault(
            name="head's name does not resolve",
            broken=scripts(FIRST, script.NO_HEAD % ("", ""), script.HEAD_AGAIN),
            code=Code.NAME_DOES_NOT_RESOLVE,
            node=FIRST,
            words="does not resolve (no such name)",
        ),
        Fault(
            name="slurmd hung",
            broken=scripts(SECOND, _SIGNAL.format("SIGSTOP"), _SIGNAL.format("SIGCONT")),
            code=Code.SLURMD_HUNG,
            node=SECOND,
            words="accepts connections to TCP 6818",
        ),
    ),
    _doctor(
        Fault(
            name="mount hung",
            broken=scripts(FIRST, script.HUNG_SERVER, script.NO_SERVER),
            code=Code.MOUNT_HUNG,
            node=FIRST,
            words="/mnt/shared of cpu-static-1 (server:/, fuse) hangs",
        ),
        Fault(
            name="slurmd's spool full",
            broken=nested(resumed(SECOND), scripts(SECOND, script.FULL_SPOOL, script.EMPTY_SPOOL)),
            code=Code.DISK_FULL,
            node=SECOND,
            words="SlurmdSpoolDir on cpu-static-2 is full",
        ),
        Fault(
            name="head's state full",
            broken=scripts(HEAD, script.FULL_STATE, script.EMPTY_STATE),
            code=Code.DISK_FULL,
            node=HEAD,
            words="of the head",
        ),
        Fault(
            name="SSM agent stopped",
            broken=without_agent(THIRD),
            code=Code.SSM_AGENT_DOWN,
            node=THIRD,
            words="Slurm does not need it",
        ),
    ),
    _doctor(
        Fault(
            name="slurmctld stopped",
            broken=scripts(HEAD, "systemctl stop slurmctld", "systemctl start slurmctld"),
            code=Code.SLURMCTLD_DOWN,
            node=HEAD,
            words="slurmctld.service is inactive",
        ),
    ),
    _doctor(
        Fault(
            name="SlurmdPort differs",
            broken=in_slurm_conf("s/^SlurmdPort=.*/SlurmdPort=16818/"),
            code=Code.DAEMON_PORT_DIFFERS,
            node=FIRST,
            words="listens on TCP 6818, and is looked for on TCP 16818",
            besides=(Code.CONFIG_DIFFERS,),
        ),
    ),
    _doctor(
        Fault(
            name="RealMemory above what the node has",
            broken=in_slurm_conf(
                "s/^SlurmdParameters=config_overrides$//",
                r"s/RealMemory=\([0-9]*\)/RealMemory=\10/",
                until=script.REFUSED,
            ),
            code=Code.NODE_REFUSED,
            node=FIRST,
            words="Low RealMemory",
            besides=(Code.CONFIG_DIFFERS,),
        ),
    ),
    Round(
        asked=Asked.PROBES,
        faults=(
            Fault(
                name="slurmd goes by a name that slurm.conf does not have",
                broken=scripts(FIRST, script.OTHER_NAME, script.OWN_NAME),
                code=Code.NODE_NAME_UNKNOWN,
                node=FIRST,
                words="it goes by the name cpu-static-9",
            ),
        ),
    ),
    _doctor(
        Fault(
            name="SrunPortRange used up",
            broken=scripts(HEAD, script.FEW_PORTS, script.MANY_PORTS),
            code=Code.SRUN_PORTS_EXHAUSTED,
            node=HEAD,
            words="of the 10 ports 61000-61009",
        ),
    ),
    Round(
        asked=Asked.TEST,
        faults=(
            Fault(
                name="srun exits with 0 and prints nothing",
                broken=scripts(HEAD, script.SILENT_SRUN, script.OWN_SRUN),
                code=Code.SRUN_SILENT,
                node="",
                words="the network is not why",
            ),
        ),
    ),
    _watch(
        Fault(
            name="SSM agent lost midway",
            broken=without_agent(FIRST),
            code=Code.AGENT_NEVER_ONLINE,
            node=FIRST,
            words="is ConnectionLost now",
        ),
    ),
    _watch(
        Fault(
            name="apt lock held",
            broken=nested(scripts(FIRST, script.APT_LOCKED, script.APT_FREE), bootstrapping(FIRST)),
            code=Code.BOOTSTRAP_WAITS,
            node=FIRST,
            words="held by process",
        ),
        Fault(
            name="package mirror down",
            broken=nested(scripts(SECOND, script.MISSING_PACKAGE, script.PACKAGE_AGAIN), bootstrapping(SECOND)),
            code=Code.BOOTSTRAP_WAITS,
            node=SECOND,
            words="deb.debian.org",
        ),
    ),
    _watch(
        Fault(
            name="role lacks its statement on parameters",
            broken=nested(
                scripts(FIRST, "true", script.BOOTSTRAP_AGAIN), lacking("ssm:GetParameter"), bootstrapping(FIRST)
            ),
            code=Code.BOOTSTRAP_WAITS,
            node=FIRST,
            words="AccessDenied",
        ),
    ),
    _watch(
        Fault(
            name="secret of the munge key unreadable",
            broken=nested(
                scripts(FIRST, "true", script.BOOTSTRAP_AGAIN),
                lacking("secretsmanager:GetSecretValue"),
                bootstrapping(FIRST),
            ),
            code=Code.BOOTSTRAP_WAITS,
            node=FIRST,
            words="read secret arn:",
        ),
    ),
    _watch(
        Fault(
            name="user data fails at its start",
            broken=scripts(
                FIRST,
                script.user_data("-e 's#^install -d .*#install -d /etc/hostname/x#'"),
                script.user_data_over(),
            ),
            code=Code.BOOTSTRAP_FAILED,
            node=FIRST,
            words="step user-data:start: line 10: install -d",
        ),
        Fault(
            name="user data cannot install boto3",
            broken=scripts(
                SECOND,
                script.user_data("", before="mv /usr/lib/python3/dist-packages/boto3 /root/"),
                script.user_data_over("mv /root/boto3 /usr/lib/python3/dist-packages/"),
            ),
            code=Code.BOOTSTRAP_FAILED,
            node=SECOND,
            words="step user-data:packages: python3-boto3 cannot be installed",
        ),
        Fault(
            name="user data cannot fetch the bundle",
            broken=scripts(THIRD, script.user_data("-e \"s#/bundle'#/none'#\""), script.user_data_over()),
            code=Code.BOOTSTRAP_FAILED,
            node=THIRD,
            words="step user-data:bundle: the node bundle cannot be fetched",
        ),
    ),
    _watch(
        Fault(
            name="cloud-init fails before user data",
            broken=without_data_source(FIRST),
            code=Code.BOOTSTRAP_FAILED,
            node=FIRST,
            words="step cloud-init: user data did not run",
        ),
    ),
)
"""In this order."""

FAULTS = tuple(fault for one in ROUNDS for fault in one.faults)

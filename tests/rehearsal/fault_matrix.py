"""The faults of a live cluster.

Faults of one round are made at the same time, each on a machine of its own or in flows of its own: so they are also
told apart from each other.
"""

from __future__ import annotations

from slurm_cluster.runtime.verdict import Code
from tests.rehearsal import boot_faults
from tests.rehearsal import breakage_scripts as script
from tests.rehearsal.breakage import (
    closing,
    in_slurm_conf,
    nested,
    other_clock,
    restarting,
    resumed,
    scripts,
    without_agent,
)
from tests.rehearsal.faults import FIRST, HEAD, SECOND, THIRD, Asked, Fault, Round


def _closed(flow_id: str, code: Code, words: str = "") -> Fault:
    return Fault(
        name=f"{flow_id} closed", broken=closing(flow_id), code=code, node=FIRST, words=words or f"{flow_id}: "
    )


def _doctor(*faults: Fault) -> Round:
    return Round(faults=faults)


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
    Round(
        asked=Asked.TEST,
        faults=(
            Fault(
                name="slurmd hung while the smoke test runs",
                broken=scripts(SECOND, _SIGNAL.format("SIGSTOP"), _SIGNAL.format("SIGCONT")),
                code=Code.SLURMD_HUNG,
                node=SECOND,
                words="accepts connections to TCP 6818",
            ),
            Fault(
                name="slurmd's spool full while the smoke test runs",
                broken=nested(resumed(THIRD), scripts(THIRD, script.FULL_SPOOL, script.EMPTY_SPOOL)),
                code=Code.DISK_FULL,
                node=THIRD,
                words="which holds /var/lib/slurm/slurmd, is full",
            ),
        ),
    ),
    *boot_faults.ROUNDS,
)
"""In this order."""

FAULTS = tuple(fault for one in ROUNDS for fault in one.faults)

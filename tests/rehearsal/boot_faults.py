"""The faults that show while the smoke test waits for machines: agents, consoles, and what bootstraps say."""

from __future__ import annotations

from slurm_cluster.runtime.verdict import Code
from tests.rehearsal import breakage_scripts as script
from tests.rehearsal.breakage import (
    Breakage,
    bootstrap_fails,
    bootstrap_waits,
    emptied,
    lacking,
    nested,
    overcome,
    scripts,
    without_agent,
    without_data_source,
    without_profile,
)
from tests.rehearsal.faults import FIRST, FOURTH, HEAD, SECOND, THIRD, Asked, Fault, Round


def _watch(*faults: Fault) -> Round:
    return Round(faults=faults, asked=Asked.WATCH)


def _step_fails(step: str, node: str, breakage: Breakage, words: str) -> Fault:
    return Fault(
        name=f"bootstrap fails at {step}",
        broken=bootstrap_fails(node, breakage),
        code=Code.BOOTSTRAP_FAILED,
        node=node,
        words=f"failed in step {step}: {words}",
    )


def _step_breaks(step: str, node: str, broken: tuple[str, str], words: str) -> Fault:
    """Scripts on the node break and mend it."""
    return _step_fails(step, node, scripts(node, *broken), words)


def _step_refuses(step: str, parameter: str, words: str) -> Fault:
    """A fault of the head alone; it is the last one of its round, as it would bear on others that bootstrap."""
    return _step_fails(step, HEAD, emptied(parameter), words)


def _waits(name: str, node: str, breakage: Breakage, words: str) -> Fault:
    return Fault(name=name, broken=bootstrap_waits(node, breakage), code=Code.BOOTSTRAP_WAITS, node=node, words=words)


ROUNDS = (
    _watch(
        Fault(
            name="SSM agent lost midway",
            broken=without_agent(FIRST),
            code=Code.AGENT_NEVER_ONLINE,
            node=FIRST,
            words="is ConnectionLost now",
        ),
        Fault(
            name="SSM agent lost after a failure that was overcome",
            broken=nested(overcome(bootstrap_fails(SECOND, scripts(SECOND, *script.NO_MUNGE))), without_agent(SECOND)),
            code=Code.AGENT_NEVER_ONLINE,
            node=SECOND,
            words="is ConnectionLost now",
        ),
        Fault(
            name="SSM agent never online, for want of an instance profile",
            broken=without_profile(FIRST, FOURTH),
            code=Code.AGENT_NEVER_ONLINE,
            node=FOURTH,
            words="has never registered",
        ),
    ),
    _watch(
        _waits("apt lock held", FIRST, scripts(FIRST, script.APT_LOCKED, script.APT_FREE), "held by process"),
        _waits(
            "package mirror down",
            SECOND,
            scripts(SECOND, script.MISSING_PACKAGE, script.PACKAGE_AGAIN),
            "deb.debian.org",
        ),
    ),
    _watch(_waits("role lacks its statement on parameters", FIRST, lacking("ssm:GetParameter"), "AccessDenied")),
    _watch(
        _waits(
            "secret of the munge key unreadable", FIRST, lacking("secretsmanager:GetSecretValue"), "read secret arn:"
        )
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
        _step_breaks("units", FIRST, script.NO_UNIT, "[Errno 21] Is a directory"),
        _step_breaks("agent", SECOND, script.NO_AGENT, "systemctl start amazon-ssm-agent.service"),
        _step_breaks("users", THIRD, script.OTHER_USER_ID, "the job user"),
        _step_refuses("bundle", "bundle", "BundleSpec has []"),
    ),
    _watch(
        _step_breaks("packages", FIRST, script.READ_ONLY_PACKAGES, "apt-mark hold"),
        _step_breaks("metadata-guard", SECOND, script.NO_RULES, ""),
        _step_breaks("munge", THIRD, script.NO_MUNGE, "munge.service does not start"),
        _step_refuses("cluster", "cluster", "ClusterSpec has []"),
    ),
    _watch(
        _step_breaks("names", FIRST, script.NO_CLOUD_INIT_FILE, "[Errno 21] Is a directory"),
        _step_breaks("head", SECOND, script.OTHER_RELEASE, "this worker has Slurm 22.05.8"),
        _step_breaks("slurmd", THIRD, script.NO_DEFAULTS, "[Errno 21] Is a directory"),
        _step_refuses("slurmctld", "partitions/cpu", "PartitionSpec has []"),
    ),
    _watch(
        Fault(
            name="user data cannot install the command",
            broken=scripts(
                FIRST,
                script.user_data("", before=script.READ_ONLY_PROGRAMS),
                script.user_data_over("umount /usr/local/sbin"),
            ),
            code=Code.BOOTSTRAP_FAILED,
            node=FIRST,
            words="step user-data:install: ",
        ),
        _step_breaks("state-volume", HEAD, script.OTHER_CLUSTERS_VOLUME, "the state volume"),
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

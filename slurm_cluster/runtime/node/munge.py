"""The munge key: the cluster's secret, put in place before munge runs."""

from __future__ import annotations

import pwd
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_cluster.runtime.node import files, units
from slurm_cluster.runtime.node.aws import patiently
from slurm_cluster.runtime.node.commands import CommandError, Runner
from slurm_cluster.runtime.node.errors import NodeError

if TYPE_CHECKING:
    from types_boto3_secretsmanager import SecretsManagerClient

KEY_FILE = Path("/etc/munge/munge.key")
_SHORTEST = 32
_LONGEST = 1024


def fetch_key(secrets: SecretsManagerClient, arn: str) -> bytes:
    """Read the key from the secret.

    Raises:
        NodeError: the secret cannot be read, or munge could not use what it holds.
    """
    answer = patiently(f"read secret {arn}", lambda: secrets.get_secret_value(SecretId=arn))
    key = answer.get("SecretString", "").encode()
    if not _SHORTEST <= len(key) <= _LONGEST:
        raise NodeError(
            f"secret {arn} holds {len(key)} bytes, a munge key has {_SHORTEST} to {_LONGEST}: put a longer string in it"
        )
    return key


def start(run: Runner, key: bytes, *, key_file: Path = KEY_FILE) -> bool:
    """Put the key in place and have munge run with it; return whether munge was (re)started.

    Munge reads its key only when it starts, and its package makes a key of its own: a running munge is restarted
    whenever the file was another one.

    Raises:
        NodeError: munge does not run, or cannot make and read a credential.
    """
    owner = pwd.getpwnam("munge")
    changed = files.replace(key_file, key, mode=0o400, uid=owner.pw_uid, gid=owner.pw_gid)
    running = units.is_active(run, "munge.service")
    if changed or not running:
        units.restart(run, "munge.service")
    try:
        credential = run(["munge", "--no-input"], timeout=30).stdout
        run(["unmunge"], input=credential, timeout=30)
    except CommandError as problem:
        raise NodeError(f"munge runs but its credentials do not work: {problem}") from problem
    return changed or not running

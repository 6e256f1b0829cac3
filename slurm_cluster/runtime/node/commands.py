"""Running other programs: time limit always, their last words in the error."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence

from slurm_cluster.runtime.node.errors import NodeError

Runner = Callable[..., "subprocess.CompletedProcess[str]"]
"""``run``, or what a test puts in its place."""

_TAIL = 400


class CommandError(NodeError):
    """A program failed, did not end in time, or is not there."""


def run(
    argv: Sequence[str],
    *,
    timeout: float = 60,
    check: bool = True,
    input: str | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end and return its status and output.

    Args:
        argv: program and arguments; no shell is involved.
        timeout: seconds after which it is killed.
        check: whether a non-zero status is an error.
        input: text for its standard input; none means an empty one.
        env: variables added to the present environment.

    Raises:
        CommandError: as the class says.
    """
    try:
        done = subprocess.run(
            list(argv),
            input=input if input is not None else "",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
            env={**os.environ, "LC_ALL": "C", **(env or {})},
        )
    except subprocess.TimeoutExpired as expired:
        raise CommandError(f"{' '.join(argv)}: no end after {timeout:g} seconds") from expired
    except OSError as problem:
        raise CommandError(f"{argv[0]}: {problem.strerror}") from problem
    if check and done.returncode != 0:
        raise CommandError(f"{' '.join(argv)}: exit status {done.returncode}: {last_words(done)}")
    return done


def last_words(done: subprocess.CompletedProcess[str]) -> str:
    """Return the end of what a program said, standard error first, in one line."""
    said = " | ".join(line.strip() for line in (done.stderr or done.stdout or "").splitlines() if line.strip())
    return said[-_TAIL:] or "it said nothing"

"""The real CDK CLI against the emulated AWS: bootstrap, deploy, destroy."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from slurm_cluster.rehearsal.cloud.cdk_failure import failure_lines
from slurm_cluster.rehearsal.cloud.cdk_tool import CdkError, app_command, cdk_script, node_executable
from slurm_cluster.rehearsal.cloud.server import ACCOUNT, REGION, Cloud, base_environment

_BOOTSTRAP_SECONDS, _DEPLOY_SECONDS, _DESTROY_SECONDS = 300, 1800, 900
_LOOK_SECONDS = 1.0
_COMMON = ("--no-notices", "--no-color", "--ci", "--no-version-reporting")


class CdkCli:
    """The CDK CLI for one app.

    Args:
        cloud: a started cloud.
        app_dir: directory of the app's ``cdk.json``, or of an ``app.py`` without one.
        directory: for the cloud assembly, the CLI's home and the outputs; made when missing.
        context: context values; what is not a string is passed as JSON.
        on_line: called with each line that the CLI prints.
        check: called every second while the CLI prints nothing; what it raises ends the CLI.
        variables: more environment variables for the CLI's processes.
    """

    def __init__(
        self,
        cloud: Cloud,
        app_dir: Path,
        directory: Path,
        *,
        context: Mapping[str, Any] | None = None,
        on_line: Callable[[str], None] = lambda line: None,
        check: Callable[[], None] = lambda: None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._cloud = cloud
        self._app_dir = app_dir
        self._directory = directory
        self._context = dict(context or {})
        self._on_line = on_line
        self._check = check
        self._variables = dict(variables or {})

    @property
    def assembly(self) -> Path:
        """Where the app is synthesized to."""
        return self._directory / "cdk.out"

    def bootstrap(self) -> None:
        """Make the CDK's own stack in the account.

        Raises:
            CdkError: it failed.
        """
        # without the app: the bootstrap stack is the CLI's
        self._run(["bootstrap", f"aws://{ACCOUNT}/{REGION}", "--app", ""], _BOOTSTRAP_SECONDS)

    def deploy(self, *, rollback: bool = True) -> dict[str, dict[str, str]]:
        """Synthesize and deploy every stack of the app; return the outputs by stack.

        Args:
            rollback: whether a stack that fails goes back to what it was; otherwise what was made stays as it failed.

        Raises:
            CdkError: it failed.
        """
        outputs = self._directory / "outputs.json"
        outputs.unlink(missing_ok=True)
        self._run(
            [
                *("deploy", "--all", "--require-approval", "never", "--progress", "events"),
                *(() if rollback else ("--no-rollback",)),
                *("--outputs-file", str(outputs), *self._app_options()),
            ],
            _DEPLOY_SECONDS,
        )
        found: dict[str, dict[str, str]] = json.loads(outputs.read_text()) if outputs.exists() else {}
        return found

    def destroy(self) -> None:
        """Delete every stack of the app as it was last deployed, without synthesizing it again.

        Raises:
            CdkError: it failed.
        """
        self._run(["destroy", "--all", "--force", "--app", str(self.assembly)], _DESTROY_SECONDS)

    def _app_options(self) -> list[str]:
        options = ["--output", str(self.assembly), "--no-lookups", "--app", app_command(self._app_dir)]
        for key, value in self._context.items():
            options += ["--context", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
        return options

    def environment(self) -> dict[str, str]:
        """Return the environment of the CLI and the app."""
        home, node = self._directory / "home", node_executable()
        return {
            **base_environment(),
            **self._cloud.cli_environment(),
            "HOME": str(home),
            "CDK_HOME": str(home),
            "CDK_DISABLE_CLI_TELEMETRY": "true",
            "CDK_DISABLE_VERSION_CHECK": "1",
            "JSII_NODE": str(node),
            "JSII_RUNTIME_PACKAGE_CACHE_ROOT": str(self._cloud.cache / "jsii"),
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), str(node.parent), os.environ.get("PATH", ""))),
            "PYTHONDONTWRITEBYTECODE": "1",
            **self._variables,
        }

    def _run(self, arguments: list[str], seconds: int) -> None:
        environment = self.environment()
        Path(environment["HOME"]).mkdir(parents=True, exist_ok=True)
        printed: list[str] = []
        script = cdk_script(self._app_dir, self._cloud.cache, self._on_line)
        process = subprocess.Popen(
            [environment["JSII_NODE"], str(script), *arguments, *_COMMON],
            cwd=self._app_dir,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        overdue = threading.Event()

        def end() -> None:
            overdue.set()
            _kill_group(process.pid)

        timer = threading.Timer(seconds, end)
        timer.start()
        try:
            assert process.stdout is not None  # noqa: S101  # it was opened as a pipe
            for line in self._lines(process.stdout):
                printed.append(line)
                self._on_line(line)
            code = process.wait()
        finally:
            timer.cancel()
            _kill_group(process.pid)  # whatever the CLI left, also when this thread was interrupted
            process.wait()
        if code:
            why = f"took longer than {seconds} s" if overdue.is_set() else f"exited with {code}"
            raise CdkError("\n".join((f"cdk {arguments[0]} {why}:", *failure_lines(printed))))

    def _lines(self, output: IO[str]) -> Iterator[str]:
        """Yield what is printed, and look around while nothing is."""
        lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

        def read() -> None:
            for line in output:
                lines.put(line.rstrip())
            lines.put(None)

        threading.Thread(target=read, daemon=True).start()
        while True:
            try:
                line = lines.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                self._check()
                continue
            if line is None:
                return
            yield line


def _kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)

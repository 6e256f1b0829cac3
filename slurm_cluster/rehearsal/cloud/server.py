"""The emulated AWS as a process of this machine, on loopback only, and clients for it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import boto3
from botocore.config import Config

from slurm_cluster.rehearsal.cloud.environment import ministack_python

REGION = "us-east-1"
ACCOUNT = "000000000000"
_ADAPTER = Path(__file__).with_name("adapter.py")
_START_SECONDS, _STOP_SECONDS = 60, 10
_CLIENT = Config(connect_timeout=5, read_timeout=60, retries={"total_max_attempts": 2}, s3={"addressing_style": "path"})
_NOT_INHERITED = ("AWS_", "CDK_", "LOCALSTACK_", "MINISTACK_")


def base_environment() -> dict[str, str]:
    """Return this process's environment without what would lead to a real AWS account."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}


def access_variables(endpoint: str) -> dict[str, str]:
    """Return the variables with which AWS tools reach the emulated AWS at ``endpoint`` as the account's root user."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",  # not one
    }


def client(endpoint: str, service: str, credentials: Mapping[str, str] | None = None) -> Any:
    """Return a boto3 client of the emulated AWS at ``endpoint``; the rest as of ``Cloud.client``."""
    session = boto3.Session(
        aws_access_key_id=credentials["AccessKeyId"] if credentials else "test",
        aws_secret_access_key=credentials["SecretAccessKey"] if credentials else "test",  # not one
        aws_session_token=credentials["Token"] if credentials else None,
        region_name=REGION,
    )
    made: Any = session.client(service, endpoint_url=endpoint, config=_CLIENT)  # type: ignore[call-overload]  # any name
    return made


class Cloud:
    """One emulated AWS account in one Region.

    Args:
        directory: for its log and temporary files; made when missing.
        nodes: directory that holds one directory per instance id, see ``emulator.Emulator``.
        cache: directory that rehearsals share, for ministack's Python environment.
        variables: more environment variables for its process.
        log: told what takes long.
    """

    def __init__(
        self,
        directory: Path,
        nodes: Path,
        *,
        cache: Path,
        variables: Mapping[str, str] | None = None,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.directory = directory
        self.nodes = nodes
        self.cache = cache
        self.port = 0
        self._variables = dict(variables or {})
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._clients: dict[str, Any] = {}

    @property
    def endpoint(self) -> str:
        """End point of every AWS service; "localhost" because buckets may be sub-domains of it."""
        return f"http://localhost:{self.port}"

    @property
    def declared_file(self) -> Path:
        """What the provisioned resources were declared with, see ``declared.py``."""
        return self.directory / "declared.json"

    @property
    def log_file(self) -> Path:
        """The process's output."""
        return self.directory / "ministack.log"

    def start(self) -> Self:
        """Start the process and wait until it answers.

        The process ends when this one does, however it does.

        Raises:
            RuntimeError: it ended or did not answer in time; the message ends with its log.
        """
        python = ministack_python(self.cache, self._log)
        temporary = self.directory / "tmp"
        for needed in (temporary, self.nodes):
            needed.mkdir(parents=True, exist_ok=True)
        # Another session may not be given the same port before this one listens on it.
        with (self.cache / "port.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._launch(python, temporary)
        return self

    def _launch(self, python: Path, temporary: Path) -> None:
        self.port = _free_port()
        with self.log_file.open("wb") as output:
            self._process = subprocess.Popen(
                [
                    *(str(python), "-P", str(_ADAPTER), "--port", str(self.port)),
                    *("--nodes", str(self.nodes), "--declared", str(self.declared_file)),
                ],
                stdin=subprocess.PIPE,  # end of file there tells the process that its parent is gone
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=temporary,
                env={
                    # nor other Python packages: it passes its environment on to Lambda functions
                    **{name: value for name, value in base_environment().items() if not name.startswith("PYTHON")},
                    "HOME": str(temporary),
                    "NO_PROXY": "localhost,127.0.0.1",
                    "TMPDIR": str(temporary),
                    **self._variables,
                },
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"ministack did not start:\n{self.log_tail()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End the process and everything that it started."""
        process, self._process = self._process, None
        self._clients.clear()
        if process is None:
            return
        assert process.stdin is not None  # noqa: S101  # it was opened as a pipe
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.poll() is None or number == signal.SIGKILL:
                _signal_group(process.pid, number)
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                continue
        process.stdin.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def alive(self) -> bool:
        """Return whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def log_tail(self, lines: int = 30) -> str:
        """Return the end of the process's output."""
        if not self.log_file.exists():
            return ""
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])

    def client(self, service: str, credentials: Mapping[str, str] | None = None) -> Any:
        """Return a boto3 client.

        Args:
            service: boto3's name of the service.
            credentials: as ``role_credentials`` returns them; by default those of the account's root user.
        """
        if credentials is None and service in self._clients:
            return self._clients[service]
        made = client(self.endpoint, service, credentials)
        if credentials is None:
            self._clients[service] = made
        return made

    def role_credentials(self, instance_profile: str, instance_id: str = "i-rehearsal") -> dict[str, str]:
        """Return temporary credentials of an instance profile's role, as instance metadata serves them.

        Args:
            instance_profile: its name or ARN.
            instance_id: becomes the name of the role session.

        Returns:
            AccessKeyId, SecretAccessKey, Token and Expiration (ISO 8601, UTC).
        """
        profile = self.client("iam").get_instance_profile(InstanceProfileName=instance_profile.rpartition("/")[2])
        return self.assume(profile["InstanceProfile"]["Roles"][0]["Arn"], instance_id)

    def assume(self, role_arn: str, session: str) -> dict[str, str]:
        """Return temporary credentials of a role, in the form of ``role_credentials``."""
        answer = self.client("sts").assume_role(RoleArn=role_arn, RoleSessionName=session)["Credentials"]
        return {
            "AccessKeyId": answer["AccessKeyId"],
            "SecretAccessKey": answer["SecretAccessKey"],
            "Token": answer["SessionToken"],
            "Expiration": answer["Expiration"].strftime("%Y-%m-%dT%H:%M:%SZ"),
        }

    def cli_environment(self) -> dict[str, str]:
        """Return variables that make AWS tools use this cloud as the account's root user, and no other."""
        return {
            **access_variables(self.endpoint),
            "AWS_REGION": REGION,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_PROXY": "localhost,127.0.0.1",
        }

    def _answers(self) -> bool:
        try:
            # the address is loopback's
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/_ministack/health", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _signal_group(leader: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, number)

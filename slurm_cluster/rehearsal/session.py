"""A cluster deployed on this machine: the API that the command line and the tests use."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from slurm_cluster.model.flows import Flow, Role
from slurm_cluster.rehearsal import checks, diagnosis, sweep
from slurm_cluster.rehearsal.cloud import verify
from slurm_cluster.rehearsal.cloud.cdk_tool import app_command
from slurm_cluster.rehearsal.cloud.server import Cloud
from slurm_cluster.rehearsal.errors import RehearsalError
from slurm_cluster.rehearsal.image import ImageKind
from slurm_cluster.rehearsal.interrupts import Interrupts
from slurm_cluster.rehearsal.network.groups import Closure
from slurm_cluster.rehearsal.network.vpc import VpcNetwork
from slurm_cluster.rehearsal.node import Node
from slurm_cluster.rehearsal.observed import names, observe
from slurm_cluster.rehearsal.ownership import claim
from slurm_cluster.rehearsal.progress import Progress, Span
from slurm_cluster.rehearsal.record import SessionRecord, State
from slurm_cluster.rehearsal.report import Report, SmokeTest
from slurm_cluster.rehearsal.run_command import CommandResult, run_command
from slurm_cluster.rehearsal.stage import Stage

_POLL_SECONDS = 0.2
READY_SECONDS = 600.0
SMOKE_TEST_SECONDS = 900.0
_GONE_SECONDS = 60.0

Context = Mapping[str, Any]
"""CDK context by key, as ``cdk deploy --context key=value``; what is not a string is passed as JSON."""


class Rehearsal:
    """A deployed app whose nodes run here. Use ``deployed``.

    Args:
        stage: everything around the app.
        app_dir: directory of its cdk.json.
        image: kind of the nodes' image.
        progress: told what happens.
        rollback: whether a stack that does not deploy goes back to what it was.
    """

    def __init__(
        self, stage: Stage, app_dir: Path, image: ImageKind, progress: Progress, *, rollback: bool = True
    ) -> None:
        self.progress = progress
        self.outputs: Mapping[str, Mapping[str, str]] = {}
        """Outputs by stack."""
        self._stage = stage
        self._app_dir = app_dir.resolve()
        self._image = image
        self._rollback = rollback
        self._context: Context = {}
        self._smoke_tests: dict[str, SmokeTest] = {}
        self._closures: list[Closure] = []

    @classmethod
    @contextmanager
    def deployed(
        cls,
        app_dir: Path,
        *,
        context: Context | None = None,
        image: ImageKind = ImageKind.BAKED,
        rollback: bool = True,
        emit: Callable[[str], None] = print,
        on_failure: Callable[[Rehearsal, Exception], None] = lambda rehearsal, error: None,
    ) -> Iterator[Rehearsal]:
        """Deploy the CDK app in ``app_dir``, wait until its nodes are ready, and remove everything at the end.

        SIGINT, SIGTERM and SIGHUP raise ``Interrupted`` inside the block.

        Args:
            app_dir: directory of the app's cdk.json; without one, of its app.py.
            context: CDK context for its synthesis.
            image: what the nodes boot.
            rollback: whether a stack that does not deploy goes back to what it was, as in an account; otherwise its
                nodes stay as they failed, for ``on_failure`` to look into.
            emit: takes the lines that say what happens.
            on_failure: called when something failed, in the block as well, before everything is removed.

        Raises:
            FileNotFoundError: there is no app in the directory.
            RehearsalError: this machine cannot rehearse, the app did not deploy, its nodes did not get ready, or
                something is left that cannot be removed. What matters of logs was emitted before.
        """
        problems = checks.problems(image)
        if problems:
            raise RehearsalError(
                "this machine cannot rehearse:\n" + "\n".join(f"  - {problem}" for problem in problems)
            )
        app_command(app_dir)  # a directory without an app shows at once
        progress = Progress(emit)
        with Interrupts() as interrupts:
            with interrupts.held(progress.say):
                sweep.sweep_abandoned(progress.say)
                stage = Stage(claim(), image, progress)
            rehearsal = cls(stage, app_dir, image, progress, rollback=rollback)
            failed = True
            try:
                stage.start()
                rehearsal.mark(State.DEPLOYING)
                stage.bootstrap(app_dir)
                rehearsal.deploy(context)
                rehearsal.wait_ready()
                rehearsal.mark(State.UP)
                yield rehearsal
                failed = False
            except Exception as error:
                rehearsal._explain_failure(error)
                on_failure(rehearsal, error)
                raise
            finally:
                with interrupts.held(progress.say):
                    left = stage.close()
                    for line in left:
                        progress.say(f"teardown: {line}")
                    if left and not failed:
                        raise RehearsalError(f"the teardown did not end by itself: {'; '.join(left)}")

    @property
    def cloud(self) -> Cloud:
        """The emulated AWS."""
        return self._stage.cloud

    @property
    def network(self) -> VpcNetwork:
        """The VPC."""
        return self._stage.network

    @property
    def nodes(self) -> Mapping[str, Node]:
        """Machines whose instances exist, by node name; ``head`` is the head node. See ``observed.names``."""
        members = dict(self._stage.fleet.members)
        named = names(member.instance for member in members.values())
        return {name: Node(name, members[instance.id], self._stage.fleet) for name, instance in named.items()}

    @property
    def heads(self) -> list[str]:
        """Names of the head nodes: none where the app has no cluster."""
        return [name for name, node in self.nodes.items() if node.member.instance.role == Role.HEAD.value]

    def deploy(self, context: Context | None = None) -> None:
        """Deploy the app; returns when the stack is complete, before its nodes are ready.

        Raises:
            RehearsalError: the CDK CLI failed.
        """
        self.progress.say("deploy", who="cdk")
        self._context = context or {}
        with self.progress.recorded("cdk deploy"):
            self.outputs = self._stage.deploy(self._app_dir, self._context, rollback=self._rollback)

    def destroy(self) -> None:
        """Destroy the app's stack by the CDK CLI and wait until its machines are gone.

        Raises:
            RehearsalError: the CDK CLI failed, or instances outlive their stack.
        """
        self.progress.say("destroy", who="cdk")
        with self.progress.recorded("cdk destroy"):
            self._stage.destroy(self._app_dir, self._context)
            deadline = time.monotonic() + _GONE_SECONDS
            while self._stage.fleet.members:
                self._stage.raise_failure()
                if time.monotonic() > deadline:
                    left = ", ".join(member.instance.label for member in self._stage.fleet.members.values())
                    raise RehearsalError(f"instances are still there after cdk destroy: {left}")
                time.sleep(_POLL_SECONDS)

    def wait_ready(self, timeout: float = READY_SECONDS) -> None:
        """Wait until every node's bootstrap has succeeded and its agent takes Run Command.

        A machine that is no node of a cluster has only to run.

        Raises:
            RehearsalError: a node failed, or not all were ready after ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        while waiting := self._not_ready():
            self._stage.raise_failure()
            failed = {label: reason for label, reason in waiting.items() if reason}
            if failed:
                raise RehearsalError("\n".join(f"{label}: {reason}" for label, reason in failed.items()))
            if time.monotonic() > deadline:
                raise RehearsalError(f"not ready after {timeout:.0f} s: {', '.join(waiting)}")
            time.sleep(_POLL_SECONDS)

    def run_command(self, node: str, script: str, *, timeout: float = 120.0) -> CommandResult:
        """Run a shell script on a node through Systems Manager and return what it printed.

        Raises:
            TimeoutError: it had not ended after ``timeout`` seconds.
        """
        ssm = self.cloud.client("ssm")
        return run_command(ssm, self.nodes[node].instance_id, script, timeout_seconds=timeout)

    def smoke_test(self, head: str = "head") -> SmokeTest:
        """Run the smoke test on a head node through Systems Manager; a check that fails is in the result.

        Raises:
            RehearsalError: the program printed no result.
        """
        began = self.progress.now()
        self.progress.say("smoke test", who=head)
        done = self.run_command(head, "slurm-cluster smoke-test", timeout=SMOKE_TEST_SECONDS)
        try:
            result = SmokeTest.from_dict(json.loads(done.stdout))
        except (ValueError, KeyError) as error:
            raise RehearsalError(
                f"slurm-cluster smoke-test on {head} printed no result (exit code {done.exit_code}):\n"
                f"{done.stdout}{done.stderr}"
            ) from error
        prefix = "smoke test" if len(self.heads) == 1 else f"{head}: smoke test"
        for name, passed, seconds, _ in result.checks:
            self.progress.record(Span(f"{prefix}: {name}", began, began + seconds, failed=passed is False))
            began += seconds
        self._smoke_tests[head] = result
        return result

    @contextmanager
    def closed(self, flow: Flow) -> Iterator[None]:
        """Drop new connections of exactly this flow while the block runs, whatever the security groups allow."""
        closure = Closure(
            ports=flow.ports,
            opener_ips=self._addresses(flow.opener),
            listener_ips=self._addresses(flow.listener),
        )
        self._closures.append(closure)
        self.network.close(closure)
        try:
            yield
        finally:
            self._closures.remove(closure)
            self.network.reopen()
            for other in self._closures:
                self.network.close(other)

    def refused(self) -> list[str]:
        """Return who was refused what by the network since the rehearsal began, a line each."""
        return list(diagnosis.refused_lines(self.network.refused(), self._label_of))

    def differences(self) -> list[str]:
        """Return the properties that the template declares and the emulated API reports otherwise, a line each."""
        return [str(difference) for difference in verify.differences(self.cloud)]

    def mark(self, state: State) -> None:
        """Tell other processes, which ``sessions`` reads for, what this session does."""
        record = SessionRecord(
            app=str(self._app_dir),
            image=self._image,
            state=state,
            endpoint=self.cloud.endpoint,
            began=self.progress.began,
        )
        record.write(self._stage.paths)

    @property
    def standing(self) -> bool:
        """Whether there is something to look into: the emulated AWS and the machines' loop live."""
        return self._stage.started and self.cloud.alive()

    def raise_failure(self) -> None:
        """Raise RehearsalError if the emulated AWS or the machines have failed."""
        self._stage.raise_failure()

    def report(self, failure: str | None = None) -> Report:
        """Return what became of the rehearsal up to now.

        Args:
            failure: why it failed, if it did.
        """
        nodes = self.nodes if self._stage.started else {}
        return Report(
            app=str(self._app_dir),
            context=self._context,
            image=self._image,
            session=self._stage.paths.session,
            began=datetime.fromtimestamp(self.progress.began, UTC),
            seconds=self.progress.now(),
            failure=failure,
            outputs=self.outputs,
            nodes={
                name: {"instance_id": node.instance_id, "private_ip": node.private_ip} for name, node in nodes.items()
            },
            smoke_tests=dict(self._smoke_tests),
            spans=tuple(self.progress.spans()),
            refused=tuple(self.refused() if self._stage.started else ()),
            differences=tuple(self.differences() if self._stage.started and self.cloud.alive() else ()),
        )

    def explain(self) -> None:
        """Emit what matters of a failure: nodes that are not ready with their logs, and refused connections."""
        for line in self._stage.explain():
            self.progress.say(line)
        if not self._stage.started:
            return
        # What failed around the nodes is no news of theirs.
        members = [] if self._stage.fleet.failure else [node.member for node in self.nodes.values()]
        # Where some failed, those that wait for them are no news.
        for member in [member for member in members if member.failure] or members:
            for line in diagnosis.node_lines(member):
                self.progress.say(line)
        for line in self.refused():
            self.progress.say(line)

    def _explain_failure(self, failure: Exception) -> None:
        try:
            self.explain()
        except Exception as error:
            # The failure itself is what must reach the caller.
            self.progress.say(f"no more can be said of it: {error}")
            failure.add_note(f"while looking for its cause: {error!r}")

    def _not_ready(self) -> dict[str, str | None]:
        """Return the labels of the nodes that should be ready and are not, and why where that is known."""
        waiting = {}
        for instance in observe(self.cloud.client("ec2")).instances.values():
            if instance.state not in ("pending", "running"):
                continue
            member = self._stage.fleet.members.get(instance.id)
            if member is None or not (member.runs if instance.role is None else member.ready and member.agent_online):
                waiting[instance.label] = member.failure if member else None
        return waiting

    def _addresses(self, role: str) -> frozenset[str]:
        return frozenset(node.private_ip for node in self.nodes.values() if node.member.instance.role == role)

    def _label_of(self, address: str) -> str:
        return next((node.name for node in self.nodes.values() if node.private_ip == address), address)

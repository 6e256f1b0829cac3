"""The plug-in of pytest: the fixture ``rehearse``.

It is loaded in every run of pytest where the package is installed, so it imports the rehearsal when it is asked for.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from slurm_cluster.rehearsal.session import Rehearsal

_FIXTURE = "rehearse"
_REHEARSE = pytest.StashKey["Rehearse"]()


class Rehearse:
    """Deploys CDK apps to the emulated AWS of this machine, one at a time."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._app: tuple[Path, str] | None = None
        self._rehearsal: Rehearsal | None = None
        self._lines: list[str] = []

    def __call__(self, app_dir: Path | str, *, context: Mapping[str, Any] | None = None) -> Rehearsal:
        """Return the deployed app, every node of which is ready.

        An app that stands is not deployed again: tests that name the same directory and context share its nodes. It is
        removed when another one is asked for, or when its emulated AWS or a machine has died meanwhile, and at the end
        of the session.

        Args:
            app_dir: directory of its cdk.json; without one, of its app.py.
            context: CDK context, as of ``cdk deploy --context``.

        Raises:
            RehearsalError: this machine cannot rehearse, or the app did not deploy, or a node did not get ready.
        """
        self._remove_what_failed()
        app = (Path(app_dir).resolve(), json.dumps(dict(context or {}), sort_keys=True))
        if self._rehearsal is None or self._app != app:
            from slurm_cluster.rehearsal.session import Rehearsal

            self.close()
            deployed = Rehearsal.deployed(app[0], context=context, emit=self._emit)
            self._rehearsal = self._stack.enter_context(deployed)
            self._app = app
        return self._rehearsal

    def _remove_what_failed(self) -> None:
        from slurm_cluster.rehearsal.errors import RehearsalError

        if self._rehearsal is None:
            return
        try:
            self._rehearsal.raise_failure()
        except RehearsalError as failure:
            self._emit(f"{failure}: what stands is removed")
            self._app = self._rehearsal = None
            # thrown into it: then it says why, and what it leaves behind is no failure of its own
            with suppress(RehearsalError):
                self._stack.__exit__(type(failure), failure, failure.__traceback__)

    def explain(self) -> str:
        """Return what can be said of the deployed app when a test has failed: its nodes, and who was refused what."""
        if self._rehearsal is None:
            return ""
        said = len(self._lines)
        self._rehearsal.explain()
        return "\n".join(self._lines[said:])

    def close(self) -> None:
        """Remove what stands."""
        self._app = self._rehearsal = None
        self._stack.close()

    def _emit(self, line: str) -> None:
        self._lines.append(line)
        print(line, file=sys.stderr)


@pytest.fixture(scope="session")
def rehearse(request: pytest.FixtureRequest) -> Iterator[Rehearse]:
    """Deploy CDK apps on this machine and run real Slurm there: ``rehearse(app_dir, context=...) -> Rehearsal``."""
    deployer = request.config.stash[_REHEARSE] = Rehearse()
    try:
        yield deployer
    finally:
        deployer.close()


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker of tests that rehearse."""
    config.addinivalue_line("markers", "rehearsal: boots real nodes; needs root, systemd-nspawn and nftables")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses the fixture, so that ``-m "not rehearsal"`` leaves it out."""
    for item in items:
        if _FIXTURE in getattr(item, "fixturenames", ()):
            item.add_marker("rehearsal")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a failed test what the rehearsal knows about its nodes."""
    report = yield
    deployer = item.config.stash.get(_REHEARSE, None)
    if deployer is None or _FIXTURE not in getattr(item, "fixturenames", ()):
        return report
    if report.failed and call.when == "call" and (said := deployer.explain()):
        report.sections.append(("rehearsal", said))
    return report

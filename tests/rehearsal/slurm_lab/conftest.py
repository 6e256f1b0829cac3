"""Starts the ten minutes of ``silent_srun`` when the session starts, and has its tests collect them at the end."""

from __future__ import annotations

import pytest

from slurm_cluster.rehearsal import checks
from tests.rehearsal.slurm_lab.silent_srun import Story, StoryThread

_THREAD = pytest.StashKey[StoryThread]()


def _waits_for_the_story(item: pytest.Item) -> bool:
    return "silent_srun_story" in getattr(item, "fixturenames", ())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the story's tests behind all others."""
    items.sort(key=_waits_for_the_story)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the story if its tests will run; so does each worker of pytest-xdist, as none knows who will run them."""
    wanted = any(_waits_for_the_story(item) for item in session.items)
    if wanted and not session.config.option.collectonly and not checks.problems():
        session.config.stash[_THREAD] = StoryThread()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Leave nothing running, also when the session ends early."""
    if (thread := session.config.stash.get(_THREAD, None)) is not None:
        thread.stop()


@pytest.fixture(scope="session")
def silent_srun_story(pytestconfig: pytest.Config) -> Story:
    """Wait for the story that began with the session, and return it."""
    return pytestconfig.stash[_THREAD].result()

"""One cluster for all tests that need one: head and three workers, deployed when the first of them asks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_cluster.rehearsal.session import Rehearsal
from tests.rehearsal.cluster_user import ClusterUser

APP_DIR = Path(__file__).parents[2]
CONTEXT = {"partitions": [{"name": "cpu", "instance_type": "c7i.large", "static_nodes": 3}]}
"""Three workers: the message tree shows only beyond two."""


@pytest.fixture(scope="session")
def rehearsal() -> Iterator[Rehearsal]:
    """The deployed app; a test leaves it as it found it."""
    with Rehearsal.deployed(APP_DIR, context=CONTEXT, emit=lambda line: print(line, file=sys.stderr)) as deployed:
        yield deployed


@pytest.fixture
def cluster(rehearsal: Rehearsal) -> ClusterUser:
    """The deployed cluster as users and administrators meet it, without jobs, its workers idle."""
    user = ClusterUser(rehearsal.nodes)
    user.settle()
    return user

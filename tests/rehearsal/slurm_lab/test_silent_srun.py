"""A closed srun port costs ten minutes of silence and ends in success: why no smoke test may trust an exit status."""

from __future__ import annotations

import pytest

from tests.rehearsal.slurm_lab.silent_srun import Srun, Story

pytestmark = pytest.mark.rehearsal


def test_srun_whose_ports_are_closed_is_silent_for_ten_minutes_and_exits_0(silent_srun_story: Story) -> None:
    closed = silent_srun_story.closed
    assert silent_srun_story.dropped_packets > 0
    assert closed.stdout == ""
    assert 600 < closed.seconds < 700
    assert closed.status == 0
    assert "aborted before step completely launched" in closed.stderr


def test_slurmd_logs_the_words_of_the_story(silent_srun_story: Story) -> None:
    assert "connect io: Connection timed out" in silent_srun_story.slurmd_log
    assert "IO setup failed: Slurmd could not connect IO" in silent_srun_story.slurmd_log


@pytest.mark.parametrize("when", ["before", "after"])
def test_srun_answers_within_seconds_on_the_same_cluster_with_its_ports_open(
    silent_srun_story: Story, when: str
) -> None:
    opened: Srun = getattr(silent_srun_story, when)
    assert (opened.stdout, opened.status) == ("worker\n", 0)
    assert opened.seconds < 30

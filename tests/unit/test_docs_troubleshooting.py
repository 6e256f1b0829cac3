"""docs/troubleshooting.md has the texts that users see, in the words of the programs that print them."""

from __future__ import annotations

import re
from pathlib import Path

from slurm_cluster.model.flows import SlurmPorts, cluster_flows
from slurm_cluster.runtime.fault import Code

PAGE = (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text()


def test_it_begins_with_the_text_that_is_searched_most() -> None:
    titles = re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
    assert titles[0] == "`connect io: Connection timed out`"


def test_every_flow_is_named_with_what_shows_when_it_is_blocked() -> None:
    for flow in cluster_flows(SlurmPorts()):
        assert f"`{flow.id}`" in PAGE


def test_every_kind_of_verdict_is_explained_once() -> None:
    rows = re.findall(r"^\| (`[a-z-]+`(?:, `[a-z-]+`)*) \|", PAGE, re.MULTILINE)
    assert sorted(re.findall(r"`([a-z-]+)`", " ".join(rows))) == sorted(Code)

"""README's generated tables are what the code makes now."""

from __future__ import annotations

import pytest

from scripts import readme
from scripts.port_table import flow_table, rule_table
from slurm_cluster.model.flows import PortRange, SlurmPorts, cluster_flows, rules


def test_generated_tables_are_not_stale() -> None:
    text = readme.README.read_text(encoding="utf-8")
    assert readme.render(text, readme.sections()) == text, "run `make docs`"


def test_only_what_is_between_the_markers_changes() -> None:
    text = "before\n<!-- generated: a -->\nold\n\nold\n<!-- end of generated -->\nafter\n"
    assert readme.render(text, {"a": "new"}) == text.replace("old\n\nold", "new")


@pytest.mark.parametrize("made", [{}, {"a": "new", "b": "new"}])
def test_a_marker_without_section_and_a_section_without_marker_are_errors(made: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="has markers for"):
        readme.render("<!-- generated: a -->\n<!-- end of generated -->\n", made)


def test_port_tables_have_every_flow_and_every_rule() -> None:
    ports = SlurmPorts(slurmctld=7000, srun=PortRange(40000, 41000))
    flows = cluster_flows(ports)
    rows = flow_table(ports).splitlines()[2:]
    assert len(rows) == len(flows)
    for row, flow in zip(rows, flows, strict=True):
        assert row.startswith(f"| `{flow.id}` | {flow.opener} → {flow.listener} | {flow.ports} |")
        assert flow.symptom in row
    assert len(rule_table(ports).splitlines()[2:]) == len(rules(flows))
    assert "| head | worker | 7000 | `controller-rpc` |" in rule_table(ports)

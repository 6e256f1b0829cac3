"""README's port tables, made from the flow table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from slurm_cluster.model.flows import Flow, SlurmPorts, cluster_flows, rules


def flow_table(ports: SlurmPorts) -> str:
    """Return every flow as a Markdown table: who opens it, to whom, and what its absence looks like."""
    return "\n".join(_flow_rows(cluster_flows(ports)))


def _flow_rows(flows: Iterable[Flow]) -> Iterator[str]:
    yield "| flow | opens → listens | TCP | what Slurm does over it | what you see when it is blocked |"
    yield "|---|---|---|---|---|"
    for flow in flows:
        yield (
            f"| `{flow.id}` | {flow.opener} → {flow.listener} | {flow.ports} | {_cell(flow.purpose)} "
            f"| {_cell(flow.symptom)} |"
        )


def rule_table(ports: SlurmPorts) -> str:
    """Return the security-group rules that the flows come to."""
    rows = ["| on the group of | from the group of | TCP | for |", "|---|---|---|---|"]
    for rule in rules(cluster_flows(ports)):
        served = ", ".join(f"`{flow.id}`" for flow in rule.flows)
        rows.append(f"| {rule.listener} | {rule.opener} | {rule.ports} | {served} |")
    return "\n".join(rows)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")

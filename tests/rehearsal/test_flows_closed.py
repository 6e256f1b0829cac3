"""Each row of the flow table is needed: closed, the cluster breaks as it says; open, before and after, it works."""

from __future__ import annotations

import pytest

from slurm_cluster.model.flows import Flow, PortRange, SlurmPorts, cluster_flows
from slurm_cluster.rehearsal.session import Rehearsal
from tests.rehearsal.closing import closed, own_ports
from tests.rehearsal.cluster_user import ClusterUser
from tests.rehearsal.flow_scenarios import SCENARIOS

FLOWS = cluster_flows(SlurmPorts())


def test_every_flow_of_the_table_has_its_scenario() -> None:
    assert list(SCENARIOS) == [flow.id for flow in FLOWS]


@pytest.mark.parametrize(
    ("flow_id", "ports"),
    [
        ("message-tree", (PortRange(6818, 6818),)),
        ("srun-io", (PortRange(1024, 6816), PortRange(6818, 65535))),
        ("srun-io-in-job", (PortRange(1024, 6817), PortRange(6819, 65535))),
    ],
)
def test_closing_a_flow_leaves_the_daemon_ports_of_other_rows_open(flow_id: str, ports: tuple[PortRange, ...]) -> None:
    flow = next(flow for flow in FLOWS if flow.id == flow_id)
    assert own_ports(flow, FLOWS) == ports


@pytest.mark.rehearsal
@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.id)
def test_flow(flow: Flow, rehearsal: Rehearsal, cluster: ClusterUser) -> None:
    scenario = SCENARIOS[flow.id]
    scenario.works(cluster)
    scenario.prepared(cluster)
    with closed(rehearsal, flow, FLOWS):
        scenario.breaks(cluster)
    cluster.settle()
    scenario.works(cluster)

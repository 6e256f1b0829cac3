"""The flow table and the rules made of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_cluster.model.flows import ALL_TCP, PortRange, Role, SlurmPorts, cluster_flows, rules

ports = st.builds(
    SlurmPorts,
    slurmctld=st.integers(1, 65535),
    slurmd=st.integers(1, 65535),
    srun=st.tuples(st.integers(1024, 65535), st.integers(1024, 65535)).map(lambda pair: PortRange(*sorted(pair))),
)


@given(ports)
def test_rules_cover_every_flow_and_open_nothing_else(slurm: SlurmPorts) -> None:
    flows = cluster_flows(slurm)
    made = rules(flows)
    assert [flow for rule in made for flow in rule.flows if flow.ports not in rule.ports] == []
    assert sorted(flow.id for rule in made for flow in rule.flows) == sorted(flow.id for flow in flows)
    for rule in made:
        assert any(flow.ports == rule.ports for flow in rule.flows)
        assert {(flow.opener, flow.listener) for flow in rule.flows} == {(rule.opener, rule.listener)}


@given(ports)
def test_all_of_tcp_between_two_groups_is_one_rule(slurm: SlurmPorts) -> None:
    between_workers = [rule for rule in rules(cluster_flows(slurm)) if rule.opener == rule.listener == Role.WORKER]
    assert [rule.ports for rule in between_workers] == [ALL_TCP]


def test_daemon_ports_stay_rules_of_their_own() -> None:
    # the wide default range contains them; a narrower one must take nothing away
    to_head = [rule.ports for rule in rules(cluster_flows(SlurmPorts())) if rule.listener == Role.HEAD]
    assert to_head == [PortRange(6817, 6817), PortRange(1024, 65535)]


def test_every_flow_says_where_it_comes_from_and_what_its_user_sees() -> None:
    flows = cluster_flows(SlurmPorts())
    assert len({flow.id for flow in flows}) == len(flows) == 7
    for flow in flows:
        assert len(flow.symptom) > 20
        assert ".c" in flow.source or "https://" in flow.source


@pytest.mark.parametrize(("first", "last"), [(-1, 5), (5, 4), (0, 65536)])
def test_port_ranges_that_are_none(first: int, last: int) -> None:
    with pytest.raises(ValueError, match=f"port range {first}-{last} is not valid"):
        PortRange(first, last)


def test_port_range_reads_as_people_write_it() -> None:
    assert str(PortRange(6817, 6817)) == "6817"
    assert str(PortRange(1024, 65535)) == "1024-65535"
    assert PortRange(6817, 6817) in PortRange(1024, 65535)
    assert PortRange(1023, 1024) not in PortRange(1024, 65535)

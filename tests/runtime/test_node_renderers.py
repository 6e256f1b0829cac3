"""slurm.conf, cgroup.conf and gres.conf against files that a person has read (golden/); update: see ``golden``."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_cluster.model.flows import PortRange, SlurmPorts
from slurm_cluster.model.spec import ClusterSpec, PartitionSpec
from slurm_cluster.runtime.node import cgroup_conf, gres_conf, overrides, slurm_conf
from slurm_cluster.runtime.node.facts import InstanceFacts
from tests.runtime.node_doubles import FACTS, PARTITIONS, cluster_spec

GOLDEN = Path(__file__).with_name("golden")
HEAD = slurm_conf.HeadFacts(
    short_hostname="ip-10-0-0-5",
    state_directory=Path("/var/lib/slurm-cluster/state/slurmctld"),
    prolog=Path("/usr/local/sbin/slurm-cluster-prolog"),
)


def golden(name: str, text: str) -> None:
    """Compare with a golden file; UPDATE_GOLDEN=1 writes it instead, for a person to read the difference."""
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


def test_slurm_conf_of_a_cluster_with_gpus_and_a_partition_without_nodes() -> None:
    golden("slurm.conf", slurm_conf.render(cluster_spec(), PARTITIONS, FACTS, HEAD))


def test_slurm_conf_of_a_head_without_partitions_and_a_narrow_srun_range() -> None:
    golden("slurm-no-partitions.conf", slurm_conf.render(cluster_spec(srun=PortRange(61001, 63000)), (), {}, HEAD))


def test_cgroup_conf() -> None:
    golden("cgroup.conf", cgroup_conf.render())


def test_gres_conf() -> None:
    golden("gres.conf", gres_conf.render(PARTITIONS, FACTS))


def settings(text: str) -> list[tuple[str, str]]:
    return [
        (key, value)
        for key, _, value in (line.partition("=") for line in text.splitlines() if line and not line.startswith("#"))
    ]


def test_every_line_has_its_reason() -> None:
    lines = slurm_conf.render(cluster_spec(), PARTITIONS, FACTS, HEAD).splitlines()
    for before, line in itertools.pairwise(lines):
        if line and not line.startswith("#"):
            assert before.startswith("# "), line


@given(
    ports=st.builds(
        SlurmPorts,
        slurmctld=st.integers(1, 65535),
        slurmd=st.integers(1, 65535),
        srun=st.tuples(st.integers(1024, 65535), st.integers(1024, 65535)).map(lambda pair: PortRange(*sorted(pair))),
    )
)
def test_ports_in_slurm_conf_are_those_of_the_spec(ports: SlurmPorts) -> None:
    spec = ClusterSpec(**{**cluster_spec().to_dict(), "ports": ports})
    found = dict(settings(slurm_conf.render(spec, (), {}, HEAD)))
    assert found["SlurmctldPort"] == str(ports.slurmctld)
    assert found["SlurmdPort"] == str(ports.slurmd)
    if ports.srun == PortRange(1024, 65535):
        assert "SrunPortRange" not in found
    else:
        assert found["SrunPortRange"] == str(ports.srun)


@given(
    st.dictionaries(st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True), st.integers(0, 300), min_size=0, max_size=6)
)
def test_text_does_not_depend_on_the_order_of_partitions_and_no_setting_comes_twice(sizes: dict[str, int]) -> None:
    partitions = [
        PartitionSpec(name=name, instance_type="c7g.xlarge", static_nodes=size, default=False)
        for name, size in sizes.items()
    ]
    text = slurm_conf.render(cluster_spec(), partitions, FACTS, HEAD)
    assert text == slurm_conf.render(cluster_spec(), partitions[::-1], FACTS, HEAD)
    keys = Counter(key for key, _ in settings(text) if key not in ("NodeName", "PartitionName"))
    assert not [key for key, count in keys.items() if count > 1]


@given(cores=st.integers(1, 448), threads=st.sampled_from([1, 2]), memory=st.integers(512, 32_000_000))
def test_a_job_on_all_cpus_gets_no_more_than_the_memory_of_the_node(cores: int, threads: int, memory: int) -> None:
    facts = InstanceFacts(instance_type="x", cores=cores, threads_per_core=threads, memory_mib=memory)
    partition = PartitionSpec(name="p", instance_type="x", static_nodes=1, default=True)
    line = next(
        line
        for line in slurm_conf.render(cluster_spec(), [partition], {"x": facts}, HEAD).splitlines()
        if line.startswith("PartitionName=")
    )
    assert int(line.rsplit("DefMemPerCPU=", 1)[1]) * facts.cpus <= memory


def test_an_override_takes_the_place_of_the_rendered_setting_and_adds_records(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("treewidth=2\nSelectType = select/linear\nNodeName=extra State=CLOUD\n")
    text, found = overrides.apply(
        "slurm.conf", "SelectType=select/cons_tres\nNodeName=a State=CLOUD\nTreeWidth=16\n", directory=tmp_path
    )
    assert found
    assert [line for line in text.splitlines() if line and not line.startswith("#")] == [
        "NodeName=a State=CLOUD",
        "treewidth=2",
        "SelectType = select/linear",
        "NodeName=extra State=CLOUD",
    ]


def test_without_an_override_the_text_stays_as_it_is(tmp_path: Path) -> None:
    assert overrides.apply("gres.conf", "x\n", directory=tmp_path) == ("x\n", False)


@pytest.mark.parametrize("name", ["slurm.conf", "slurm-no-partitions.conf", "cgroup.conf", "gres.conf"])
def test_golden_files_hold_no_secret_and_end_with_a_line_end(name: str) -> None:
    text = (GOLDEN / name).read_text()
    assert "arn:" not in text
    assert text.endswith("\n")

"""Names: what is allowed, and that no two nodes of a cluster can share one."""

from __future__ import annotations

import pytest
from ClusterShell.NodeSet import NodeSet  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from slurm_cluster.model import names

partition_names = st.from_regex(names.PARTITION_NAME, fullmatch=True).filter(
    lambda name: names.partition_name_problem(name) is None
)


@given(st.dictionaries(partition_names, st.integers(1, 40), min_size=1, max_size=8))
def test_node_names_of_a_cluster_are_unique(partitions: dict[str, int]) -> None:
    static = [name for partition, count in partitions.items() for name in names.static_node_names(partition, count)]
    # elastic nodes are <partition>-<n>
    elastic = [f"{partition}-{number}" for partition in partitions for number in range(1, 41)]
    assert names.duplicates([*static, *elastic]) == ()


@given(partition_names, st.integers(1, 300))
def test_host_list_is_what_slurms_expressions_mean(partition: str, count: int) -> None:
    assert list(NodeSet(names.static_node_list(partition, count))) == list(names.static_node_names(partition, count))


@pytest.mark.parametrize("name", ["a", "cpu", "gpu-8", "x" * 25, "static", "cpu-static-gpu", "all-cpus"])
def test_partition_names_that_are_allowed(name: str) -> None:
    assert names.partition_name_problem(name) is None


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "use 1 to 25"),
        ("x" * 26, "use 1 to 25"),
        ("Cpu", "lower-case"),
        ("8gpu", "a letter first"),
        ("gpu_8", "hyphens"),
        ("gpu\n", "use 1 to 25"),
        ("all", "keyword"),
        ("default", "keyword"),
        ("cpu-static", "must not end in '-static'"),
    ],
)
def test_partition_names_that_are_not(name: str, why: str) -> None:
    problem = names.partition_name_problem(name)
    assert problem is not None
    assert repr(name) in problem
    assert why in problem


@given(st.text(max_size=30))
def test_only_such_texts_are_partition_names(name: str) -> None:
    if names.partition_name_problem(name) is None:
        assert name.isascii()
        assert name == name.lower()
        assert 1 <= len(name) <= 25
        assert not name.endswith("-static")


@pytest.mark.parametrize(
    ("name", "allowed"),
    [("slurm", True), ("a_b-1", True), ("1", True), ("x" * 40, True), ("x" * 41, False), ("A", False), ("-a", False)],
)
def test_cluster_names(name: str, allowed: bool) -> None:
    assert (names.cluster_name_problem(name) is None) is allowed


@given(st.lists(st.sampled_from("abc"), max_size=8))
def test_duplicates_are_the_names_that_occur_twice(items: list[str]) -> None:
    assert set(names.duplicates(items)) == {item for item in items if items.count(item) > 1}

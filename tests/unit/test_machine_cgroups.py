"""Which kind of control groups a machine has, where nodes get theirs, and what is said where they cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_cluster.rehearsal import cgroups
from slurm_cluster.rehearsal.cgroups import v1, v2

OFFERED = "cpuset cpu io memory hugetlb pids rdma misc\n"


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where control groups are mounted; no systemd runs."""
    for module in (cgroups, v1, v2):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(v2, "_SYSTEMD_RUNS", tmp_path / "no-systemd")
    return tmp_path


@pytest.fixture
def unified(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with cgroup v2 alone, of which nothing is handed on yet."""
    (root / "cgroup.controllers").write_text(OFFERED)
    (root / "cgroup.subtree_control").write_text("")
    (root / "cgroup.procs").write_text("1\n7\n")
    group = root / "init.scope"
    group.mkdir()
    (group / "cgroup.kill").touch()
    monkeypatch.setattr(v2, "_OWN_GROUPS", root / "own-groups")
    (root / "own-groups").write_text("0::/init.scope\n")
    return root


@pytest.fixture
def systemd(unified: Path) -> Path:
    """The same machine, where systemd is the init process."""
    (unified / "no-systemd").mkdir()
    return unified


@pytest.fixture
def hybrid(root: Path) -> Path:
    """A machine with v1 controllers."""
    for hierarchy in ("unified", "systemd", "freezer", "cpuset", "devices", "memory"):
        (root / hierarchy).mkdir()
        (root / hierarchy / "cgroup.procs").touch()
    return root


def test_version_is_of_the_controllers(hybrid: Path) -> None:
    (hybrid / "unified" / "cgroup.controllers").write_text("hugetlb\n")
    assert (cgroups.version(), cgroups.problems()) == (1, [])
    (hybrid / "cgroup.controllers").write_text(OFFERED)
    assert cgroups.version() == 2


def test_machine_with_v2_alone_has_no_problems(unified: Path) -> None:
    assert (cgroups.version(), cgroups.problems()) == (2, [])


def test_machine_with_neither_is_told_to_boot_v2(root: Path) -> None:
    (problem,) = cgroups.problems()
    assert "systemd.unified_cgroup_hierarchy=1" in problem


def test_controllers_that_are_switched_off_are_named(unified: Path) -> None:
    (unified / "cgroup.controllers").write_text("cpuset cpu io pids\n")
    (problem,) = cgroups.problems()
    assert "does not offer the controller memory:" in problem
    assert "cgroup_disable=memory" in problem


def test_old_kernel_is_told(unified: Path) -> None:
    (unified / "init.scope" / "cgroup.kill").unlink()
    (problem,) = cgroups.problems()
    assert "Linux 5.14" in problem


def test_v1_hierarchy_beside_v2_is_named(unified: Path) -> None:
    (unified / "own-groups").write_text("1:net_cls:/\n0::/init.scope\n")
    (problem,) = cgroups.problems()
    assert "(net_cls)" in problem


def test_group_that_is_not_the_real_root_must_be_free_of_processes(unified: Path) -> None:
    (unified / "cgroup.type").write_text("domain\n")
    (problem,) = cgroups.problems()
    assert "cpuset, cpu, memory cannot be handed on" in problem
    (unified / "cgroup.procs").write_text("")
    assert cgroups.problems() == []
    (unified / "cgroup.procs").write_text("1\n")
    (unified / "cgroup.subtree_control").write_text("cpuset cpu memory\n")
    assert cgroups.problems() == []


def test_node_without_systemd_on_the_host_has_a_group_right_below_the_root(unified: Path) -> None:
    groups = cgroups.of_node("sc0000-i-1")
    assert cgroups.names("sc0000-") == []
    groups.create()
    assert (unified / "cgroup.subtree_control").read_text() == "+cpuset +cpu +memory +pids"
    assert groups.tops == (unified / "sc0000-i-1",)
    assert groups.entry()[-2:] == [str(unified / "sc0000-i-1" / "cgroup.procs"), "--"]
    assert (cgroups.names("sc0000-"), cgroups.names("sc0001-")) == (["sc0000-i-1"], [])
    groups.remove()
    assert cgroups.names("sc0000-") == []


def test_controllers_that_are_handed_on_already_stay_as_they_are(unified: Path) -> None:
    (unified / "cgroup.subtree_control").write_text("cpuset cpu io memory pids\n")
    cgroups.of_node("sc0000-i-1").create()
    assert (unified / "cgroup.subtree_control").read_text() == "cpuset cpu io memory pids\n"


def test_node_on_a_host_of_systemd_has_a_delegated_scope(systemd: Path) -> None:
    groups = cgroups.of_node("sc0000-i-1")
    groups.create()
    assert (systemd / "cgroup.subtree_control").read_text() == ""
    assert {"--scope", "--unit=sc0000-i-1.scope", "--property=Delegate=yes"} <= set(groups.entry())
    assert groups.tops == (systemd / "machine.slice" / "sc0000-i-1.scope",)
    groups.unified.mkdir(parents=True)
    assert cgroups.names("sc0000-") == ["sc0000-i-1"]


def test_node_beside_v1_controllers_has_a_group_in_each_hierarchy(hybrid: Path) -> None:
    for setting in ("cpuset.cpus", "cpuset.mems"):
        (hybrid / "cpuset" / setting).write_text("0\n")
    groups = cgroups.of_node("sc0000-i-1")
    groups.create()
    assert {top.parent.name for top in groups.tops} == {"unified", "systemd", "freezer", "cpuset", "devices"}
    assert (hybrid / "cpuset" / "sc0000-i-1" / "cpuset.cpus").read_text() == "0\n"
    assert groups.entry()[-1] == "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1"
    assert cgroups.names("sc0000-") == ["sc0000-i-1"]

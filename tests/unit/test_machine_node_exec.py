from __future__ import annotations

import pytest

from slurm_cluster.rehearsal import node_exec


def test_command_enters_every_name_space_and_ends_with_the_program() -> None:
    argv = node_exec.command(4242, ["printf", "%s", "a b"])
    assert argv[:2] == ["nsenter", "--target=4242"]
    assert argv[-3:] == ["printf", "%s", "a b"]
    assert argv[2 : argv.index("--")] == ["-m", "-u", "-i", "-n", "-p", "-C", "-T", "-r", "-w"]


def test_environment_is_made_anew() -> None:
    argv = node_exec.command(4242, ["true"])
    after = argv[argv.index("env") :]
    assert after[:3] == ["env", "-i", f"PATH={node_exec.PATH}"]
    assert not any(word.startswith("HOME=") for word in argv)


def test_capabilities_that_belong_to_the_host_are_dropped() -> None:
    bounding = next(word for word in node_exec.command(4242, ["true"]) if word.startswith("--bounding-set="))
    sets = bounding.partition("=")[2].split(",")
    assert sets[0] == "-all"
    assert "+net_admin" in sets
    assert not {"+sys_module", "+sys_time", "+sys_rawio", "+sys_resource"} & set(sets)


@pytest.mark.parametrize("pid", [-1, 0, 1])
def test_pid_that_is_no_nodes_init_is_refused(pid: int) -> None:
    with pytest.raises(ValueError, match="give its pid as the host sees it"):
        node_exec.command(pid, ["true"])


def test_empty_command_is_refused() -> None:
    with pytest.raises(ValueError, match="give a program"):
        node_exec.command(4242, [])

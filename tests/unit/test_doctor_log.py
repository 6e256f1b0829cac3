"""slurmctld's log, as Slurm 24.11 writes it."""

from __future__ import annotations

import time
from pathlib import Path

from slurm_cluster.doctor import controller_log
from slurm_cluster.runtime.node import slurm_facts
from tests.runtime.node_doubles import Programs

WRONG_KEY = """\
[2026-11-30T22:34:50.077] error: Munge decode failed: Invalid credential
[2026-11-30T22:34:50.077] auth/munge: _print_cred: ENCODED: Thu Jan 01 00:00:00 1970
[2026-11-30T22:34:50.077] auth/munge: _print_cred: DECODED: Thu Jan 01 00:00:00 1970
[2026-11-30T22:34:50.077] error: slurm_unpack_received_msg: [[n2]:45744] auth_g_verify: \
MESSAGE_NODE_REGISTRATION_STATUS has authentication error: Unspecified error
[2026-11-30T22:34:50.077] error: slurm_unpack_received_msg: [[n2]:45744] Protocol authentication error
"""
CLOCK = """\
[2026-11-30T22:34:50.077] error: Munge decode failed: Expired credential
[2026-11-30T22:34:50.077] auth/munge: _print_cred: ENCODED: Mon Nov 30 22:24:50 2026
[2026-11-30T22:34:50.077] auth/munge: _print_cred: DECODED: Mon Nov 30 22:34:50 2026
[2026-11-30T22:34:50.077] error: slurm_unpack_received_msg: [[10.0.0.7]:45744] auth_g_verify: \
MESSAGE_NODE_REGISTRATION_STATUS has authentication error: Unspecified error
"""
OTHER_CONF = """\
[2026-11-30T22:34:43.078] error: Node n1 appears to have a different slurm.conf than the slurmctld.  This could cause \
issues with communication and functionality.
"""
NAMES = {"n1": "n1", "n2": "n2", "10.0.0.7": "n3"}


def lines(text: str, tmp_path: Path) -> list[tuple[float, str]]:
    path = tmp_path / "slurmctld.log"
    path.write_text(text)
    return slurm_facts.log_lines(Programs(), "slurmctld", str(path), seconds=time.time())


def test_a_wrong_key_is_told_by_the_node_that_it_comes_from(tmp_path: Path) -> None:
    found = controller_log.refused(lines(WRONG_KEY, tmp_path), NAMES)
    assert {node: (item["kind"], item["line"], item["skew"]) for node, item in found.items()} == {
        "n2": ("key", "Invalid credential", 0)
    }


def test_a_clock_is_told_with_how_far_it_is_off(tmp_path: Path) -> None:
    found = controller_log.refused(lines(CLOCK, tmp_path), NAMES)
    assert {node: (item["kind"], item["skew"]) for node, item in found.items()} == {"n3": ("clock", 600)}


def test_machines_that_are_no_nodes_and_probes_that_say_nothing_are_passed_over(tmp_path: Path) -> None:
    probe = "[2026-11-30T22:34:54.032] error: slurm_receive_msgs: [[n1]:41498] failed: Zero Bytes were transmitted\n"
    assert controller_log.refused(lines(WRONG_KEY + probe, tmp_path), {"n1": "n1"}) == {}


HUNG_UP = """\
[2026-11-30T22:34:54.032] error: slurm_receive_msgs: [[n1.lab]:41498] failed: Zero Bytes were transmitted or received
[2026-11-30T22:34:54.032] error: slurm_receive_msgs: [[n2]:41498] failed: Zero Bytes were transmitted or received
[2026-11-30T22:34:55.032] error: slurm_receive_msgs: [[n1.lab]:41498] failed: Zero Bytes were transmitted or received
[2026-11-30T22:34:56.032] error: slurm_receive_msg: [[n3]:41498] failed: Zero Bytes were transmitted or received
[2026-11-30T22:34:56.032] error: slurm_receive_msg: [[n3]:41498] failed: Zero Bytes were transmitted or received
"""


def test_who_ends_slurmctlds_connections_without_an_answer_more_than_once_is_told(tmp_path: Path) -> None:
    found = controller_log.hung_up(lines(HUNG_UP, tmp_path), {**NAMES, "n3": "n3"})
    assert list(found) == ["n1"]
    assert "[[n1.lab]:41498]" in found["n1"]["line"]


def test_what_was_mended_counts_no_more(tmp_path: Path) -> None:
    found = controller_log.refused(lines(WRONG_KEY, tmp_path), NAMES)
    when = found["n2"]["when"]
    assert set(controller_log.holding(found, {"n2": when - 50}, [], when + 300)) == {"n2"}
    assert controller_log.holding(found, {"n2": when + 5}, [], when + 10) == {}
    assert set(controller_log.holding(found, {}, ["n2"], when + 30)) == {"n2"}
    assert controller_log.holding(found, {}, ["n2"], when + 90) == {}
    assert controller_log.holding(found, {}, [], when + 3600) == {}


def test_another_configuration_counts_until_slurmd_is_started_anew(tmp_path: Path) -> None:
    found = lines(OTHER_CONF, tmp_path)
    when = found[0][0]
    assert set(controller_log.other_configurations(found, {"n1": when - 100})) == {"n1"}
    assert controller_log.other_configurations(found, {"n1": when + 100}) == {}


def test_errors_of_a_job_without_those_of_configuration(tmp_path: Path) -> None:
    text = OTHER_CONF + (
        "[2026-11-30T23:00:24.032] error: validate_node_specs: Prolog or job env setup failure on node n1, draining\n"
        "[2026-11-30T23:00:25.032] error: something on n10\n"
        "[2026-11-30T23:00:25.032] sched: Allocate JobId=7 NodeList=n1\n"
        "[2026-11-30T23:00:25.032] error: slurmd error running JobId=7 on n1: Plugin initialization failed\n"
    )
    assert [line[7:25] for line in controller_log.of_job(lines(text, tmp_path), "7", "n1")] == [
        "validate_node_spec",
        "slurmd error runni",
    ]


def test_the_journal_is_read_where_there_is_no_file() -> None:
    entry = '{"__REALTIME_TIMESTAMP": "%d", "MESSAGE": "error: x"}'
    now = time.time()
    text = "\n".join([entry % (now * 1e6), entry % ((now - 900) * 1e6), "not json", '{"MESSAGE": [1, 2]}'])
    found = slurm_facts.log_lines(Programs({"journalctl": text}), "slurmctld", "", seconds=600)
    assert [line for _, line in found] == ["error: x"]

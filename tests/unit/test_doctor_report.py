"""What the doctor says: a word for each probe, an exit status by class, and the same as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurm_cluster.doctor import command_line, head, table
from slurm_cluster.doctor.examination import Examination
from slurm_cluster.doctor.probes import Outcome, rows
from slurm_cluster.doctor.report import Report
from slurm_cluster.doctor.visits import Visit
from slurm_cluster.model.flows import SlurmPorts, cluster_flows
from slurm_cluster.runtime.evidence import HEAD
from slurm_cluster.runtime.node import probe_connections
from slurm_cluster.runtime.node.commands import CommandError
from slurm_cluster.runtime.verdict import findings
from tests.runtime.node_doubles import Programs
from tests.unit.test_doctor_faults import Foreign, full_disk
from tests.unit.verdict_cases import FIRST, SECOND

NODE = "NodeName={} CPUAlloc=0 CPUTot=4 NodeAddr=a NodeHostName=h Version=24.11.5 State=IDLE Partitions=lab\n"


def examined(case: Foreign, *, busy: tuple[str, ...] = ()) -> Examination:
    for node in busy:
        case.unvisited(node)
    evidence = case.evidence()
    visits = {
        node: Visit(how="not", why="it is busy with users' jobs") if node in busy else Visit(how="job", answer={})
        for node in (FIRST, SECOND)
    }
    return Examination(
        evidence=type(evidence)(**{**vars(evidence), "foreign": True}),
        nodes=table.parse("".join(NODE.format(node) for node in (FIRST, SECOND))),
        visits=visits,
        seconds={"disks": 0.2, "hung": 0.4},
    )


def report(found: Examination) -> Report:
    faults = findings(found.evidence)
    return Report(faults=faults, rows=rows(found, faults), notes=["a note"], seconds=9.7)


def outcomes(said: Report) -> dict[str, Outcome]:
    return {row.probe: row.outcome for row in said.rows}


def test_healthy_is_0_with_a_word_for_every_flow() -> None:
    said = report(examined(Foreign()))
    assert said.status == 0
    assert {f"flow {flow.id}" for flow in cluster_flows(SlurmPorts())} <= set(outcomes(said))
    assert set(outcomes(said).values()) == {Outcome.OK, Outcome.NOT_APPLICABLE}
    assert "No fault was found." in said.text()


def test_a_fault_is_1_and_stands_in_its_probe_alone() -> None:
    case = Foreign()
    full_disk(case)
    said = report(examined(case))
    assert said.status == 1
    assert [name for name, outcome in outcomes(said).items() if outcome is Outcome.FAULT] == ["disks and mounts"]
    text = said.text()
    assert "FAULT disks and mounts" in text
    assert "1. disk-full (cpu-static-1)" in text
    assert "change: Make room" in text
    assert max(map(len, text.splitlines())) <= 110


def test_a_closed_flow_stands_in_its_own_row_with_where_its_packets_end() -> None:
    case = Foreign()
    case.drop(FIRST, HEAD)
    said = report(examined(case))
    bad = [row for row in said.rows if row.outcome is Outcome.FAULT]
    assert [row.probe for row in bad] == ["flow srun-io"]
    assert bad[0].evidence == f"TCP 1024, 33279, 65535: {FIRST} to head (on the way)"


def test_what_could_not_be_looked_at_is_2_and_says_why() -> None:
    said = report(examined(Foreign(), busy=(FIRST, SECOND)))
    assert said.status == 2
    assert outcomes(said)["flow srun-io"] is Outcome.UNKNOWN
    assert outcomes(said)["disks and mounts"] is Outcome.OK
    assert "busy with users' jobs" in next(row.evidence for row in said.rows if row.probe == "flow srun-io")


def test_json_has_the_same() -> None:
    case = Foreign()
    full_disk(case)
    value = json.loads(json.dumps(report(examined(case)).to_dict()))
    assert (value["status"], value["seconds"], value["notes"]) == ("fault", 9.7, ["a note"])
    assert value["faults"][0]["code"] == "disk-full"
    assert value["faults"][0]["reason"].startswith("disk-full: ")
    first = value["probes"][0]
    assert (first["probe"], first["outcome"], first["seconds"], first["deadline"]) == (
        "disks and mounts",
        "fault",
        0.4,
        head.FACT_SECONDS,
    )


def test_slurmctld_that_cannot_be_asked_is_a_fault_and_the_rest_is_open(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "none"))
    monkeypatch.setattr(probe_connections, "ATTEMPT_SECONDS", 0.1)
    dead = Programs({"scontrol": 1, "systemctl": CommandError("systemctl: not here"), "munge": "MUNGE:x:"})
    status = command_line.main(["--json"], dead)
    value = json.loads(capsys.readouterr().out)
    assert status == 1
    assert "slurmctld-down" in {fault["code"] for fault in value["faults"]}
    assert not {fault["code"] for fault in value["faults"] if fault["code"].endswith("-blocked")}
    assert next(row["outcome"] for row in value["probes"] if row["probe"] == "flow srun-io") == "could not tell"


def test_wrong_usage_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command_line.main(["--most", "0"])
    assert ended.value.code == 2
    assert "give 1 or more" in capsys.readouterr().err

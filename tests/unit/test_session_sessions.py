"""Sessions as processes see them that do not own them: which one is meant, which machine, how far it is."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import boto3
import pytest

from slurm_cluster.model.node_files import NODE_TAG, ROLE_TAG, STATUS_FILE
from slurm_cluster.rehearsal import ownership, paths, sessions
from slurm_cluster.rehearsal.errors import RehearsalError
from slurm_cluster.rehearsal.image import ImageKind
from slurm_cluster.rehearsal.observed import Instance, Observed
from slurm_cluster.rehearsal.ownership import Ownership, claim
from slurm_cluster.rehearsal.record import SessionRecord, State
from slurm_cluster.rehearsal.sessions import SeenMachine, choose, living
from slurm_cluster.rehearsal.visit import as_dict, lines


def instance(id: str, state: str = "running", **tags: str) -> Instance:
    return Instance(
        id=id, state=state, private_ip="10.0.64.5", subnet_id="subnet-1", root_device="/dev/xvda", tags=tags
    )


INSTANCES = [
    instance("i-1", **{ROLE_TAG: "head", "Name": "Stack/Head"}),
    instance("i-2", **{ROLE_TAG: "worker", NODE_TAG: "cpu-static-1"}),
    instance("i-3", **{ROLE_TAG: "worker", NODE_TAG: "cpu-static-1"}),
    instance("i-4", Name="Stack/Web"),
    instance("i-5", Name="Stack/Twin"),
    instance("i-6", Name="Stack/Twin"),
    instance("i-7", "terminated", Name="Stack/Gone"),
]


@pytest.fixture(autouse=True)
def state_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for module in (paths, ownership):
        monkeypatch.setattr(module, "STATE_ROOT", tmp_path)
    monkeypatch.setattr(sessions, "client", lambda endpoint, service: (endpoint, service))
    found = {item.id: item for item in INSTANCES}
    monkeypatch.setattr(sessions, "observe", lambda _: Observed(instances=found, volumes={}))
    return tmp_path


@pytest.fixture
def begin() -> Iterator[Callable[[str], Ownership]]:
    """Begin a session of an app; without an app it has said nothing of itself yet."""
    owned: list[Ownership] = []

    def begin(app: str) -> Ownership:
        owned.append(claim())
        owned[-1].paths.root.mkdir(parents=True)
        if app:
            SessionRecord(
                app=app, image=ImageKind.BAKED, state=State.UP, endpoint="http://localhost:1", began=1000.0
            ).write(owned[-1].paths)
        return owned[-1]

    yield begin
    for item in owned:
        item.release()


def test_the_only_session_needs_no_name_and_several_do(begin: Callable[[str], Ownership]) -> None:
    with pytest.raises(RehearsalError, match="no session lives on this machine: start one with the command up"):
        choose(None)
    first = begin("/apps/one").paths.session
    assert choose(None).id == choose(first).id == first
    second = begin("").paths.session
    with pytest.raises(RehearsalError, match=rf"several sessions .*{first} \(/apps/one\)|{second}"):
        choose(None)
    assert choose(second).state is State.STARTING
    with pytest.raises(RehearsalError, match="no session 'zzzz' lives"):
        choose("zzzz")


def test_machines_are_found_by_node_name_instance_id_and_unique_name_tag(begin: Callable[[str], Ownership]) -> None:
    begin("/apps/one")
    (session,) = living()
    wanted = {
        "head": "i-1",
        "cpu-static-1": "i-2",
        "cpu-static-1@i-3": "i-3",
        "i-3": "i-3",
        "Stack/Web": "i-4",
        "Stack/Head": "i-1",
    }
    assert {name: session.machine(name).instance.id for name in wanted} == wanted
    with pytest.raises(RehearsalError, match="'Stack/Twin' is the name of several machines"):
        session.machine("Stack/Twin")
    for gone in ("Stack/Gone", "i-7", "cpu"):
        with pytest.raises(RehearsalError, match=f"'{gone}' is no machine of session .*: give one of head, cpu-sta"):
            session.machine(gone)


def test_a_session_that_starts_has_no_machines_yet(begin: Callable[[str], Ownership]) -> None:
    begin("")
    (session,) = living()
    with pytest.raises(RehearsalError, match="it has none yet"):
        session.machine("head")
    assert list(lines(session)) == [f"session {session.id}: starting (process {session.owner})"]
    assert as_dict(session)["nodes"] == {}


@pytest.mark.parametrize(
    ("seen", "status", "said"),
    [
        (INSTANCES[0], None, "boots"),
        (INSTANCES[0], ("running", "packages", None), "bootstrap: packages"),
        (INSTANCES[0], ("ready", "slurmctld", None), "ready"),
        (INSTANCES[0], ("failed", "munge", "no key"), "bootstrap failed in step munge: no key"),
        (INSTANCES[3], None, "runs"),
        (instance("i-8", "stopped"), None, "stopped"),
    ],
)
def test_how_far_a_machine_is(
    begin: Callable[[str], Ownership], seen: Instance, status: tuple[str, str, str | None] | None, said: str
) -> None:
    found = SeenMachine(seen, begin("/apps/one").paths)
    directory = found.paths.nodes / seen.id
    directory.mkdir(parents=True)
    if seen.state == "running":
        (directory / "pid1").write_text("42\n")
        assert found.pid1 == 42
    if status:
        file = directory / "root" / STATUS_FILE.relative_to("/")
        file.parent.mkdir(parents=True)
        state, step, reason = status
        file.write_text(json.dumps({"boot_id": "b", "state": state, "step": step, "reason": reason, "steps": []}))
    assert found.describe() == said


def test_a_machine_that_does_not_run_cannot_be_entered(begin: Callable[[str], Ownership]) -> None:
    with pytest.raises(RehearsalError, match="i-8 does not run: instance i-8 is stopped"):
        SeenMachine(instance("i-8", "stopped"), begin("/apps/one").paths).pid1  # noqa: B018 - it raises


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (State.DEPLOYING, "it has none yet"),
        (State.UP, "it has none, as no instance of its app is there"),
        (State.FAILED, "it has none and gets none, as it has failed"),
    ],
)
def test_a_session_without_machines_says_whether_some_are_to_come(
    begin: Callable[[str], Ownership], monkeypatch: pytest.MonkeyPatch, state: State, said: str
) -> None:
    monkeypatch.setattr(sessions, "observe", lambda _: Observed(instances={}, volumes={}))
    begin("/apps/one")
    (session,) = living()
    assert session.record is not None
    replace(session.record, state=state).write(session.paths)
    (session,) = living()
    with pytest.raises(RehearsalError, match=rf"'head' is no machine of session {session.id}: {said}$"):
        session.machine("head")


def test_the_variables_of_status_are_all_that_boto3_needs(
    begin: Callable[[str], Ownership], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    begin("/apps/one")
    (session,) = living()
    (told,) = [line for line in lines(session) if "AWS APIs" in line]
    for variable in told.split()[2:]:
        monkeypatch.setenv(*variable.split("=", 1))
    made = boto3.Session().client("ec2")
    assert made.meta.endpoint_url == "http://localhost:1"
    assert boto3.Session().get_credentials() is not None


def test_status_tells_people_and_programs_the_same(begin: Callable[[str], Ownership]) -> None:
    begin("/apps/one")
    (session,) = living()
    told = "\n".join(lines(session))
    assert "AWS_ENDPOINT_URL=http://localhost:1 " in told
    value = json.loads(json.dumps(as_dict(session)))
    assert " ".join(f"{name}={text}" for name, text in value["variables"].items()) in told
    assert (value["state"], value["app"], value["problem"]) == ("up", "/apps/one", None)
    assert all(name in told and seen["instance_id"] in told for name, seen in value["nodes"].items())
    assert set(value["nodes"]) == {"head", "cpu-static-1", "cpu-static-1@i-3", "i-4", "i-5", "i-6"}

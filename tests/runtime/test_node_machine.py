"""What a node does to its own machine: files, status, packages, users, units, munge, the metadata guard."""

from __future__ import annotations

import grp
import json
import os
import pwd
import stat
import subprocess
from pathlib import Path

import pytest

from slurm_cluster.model.flows import Role
from slurm_cluster.model.node_files import COMMAND
from slurm_cluster.runtime.node import commands, files, identity, metadata_guard, munge, packages, units, users
from slurm_cluster.runtime.node.commands import CommandError
from slurm_cluster.runtime.node.errors import NodeError
from slurm_cluster.runtime.node.status import Status, failure_line
from tests.runtime.node_doubles import Clock, Programs, cluster_spec

UID, GID = os.geteuid(), os.getegid()


def test_a_program_that_fails_says_why_in_one_line() -> None:
    with pytest.raises(CommandError, match=r"sh -c .* exit status 3: first \| second$"):
        commands.run(["sh", "-c", "echo first >&2; echo second >&2; exit 3"])
    with pytest.raises(CommandError, match=r"no end after 0\.2 seconds"):
        commands.run(["sleep", "10"], timeout=0.2)
    with pytest.raises(CommandError, match="no-such-program: No such file"):
        commands.run(["no-such-program"])


def test_programs_get_no_terminal_and_their_input() -> None:
    assert commands.run(["cat"], input="key").stdout == "key"
    assert commands.run(["cat"]).stdout == ""
    assert commands.run(["sh", "-c", "echo $LC_ALL $X"], env={"X": "y"}).stdout == "C y\n"


def test_files_are_replaced_whole_and_only_when_they_differ(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "key"
    assert files.replace(path, "secret", mode=0o400, uid=UID, gid=GID)
    first = path.stat()
    assert stat.S_IMODE(first.st_mode) == 0o400
    assert not files.replace(path, "secret", mode=0o400, uid=UID, gid=GID)
    assert path.stat().st_ino == first.st_ino
    assert files.replace(path, "secret", mode=0o600, uid=UID, gid=GID)
    assert files.replace(path, b"other", mode=0o600, uid=UID, gid=GID)
    assert path.read_text() == "other"
    assert list(path.parent.iterdir()) == [path]


def test_status_tells_the_steps_and_that_all_are_done(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    clock = Clock()
    status = Status(path, console=tmp_path / "console", boot_id="boot-1", clock=clock)
    with status.step("munge"):
        running = json.loads(path.read_text())
        clock.sleep(2)
    status.ready()
    assert running == {
        "boot_id": "boot-1",
        "state": "running",
        "step": "munge",
        "reason": None,
        "steps": [{"name": "munge", "started": 0, "ended": None}],
    }
    done = json.loads(path.read_text())
    assert (done["state"], done["steps"]) == ("ready", [{"name": "munge", "started": 0, "ended": 2}])
    assert (tmp_path / "console").read_text() == "slurm-cluster: READY\n"


def test_a_failed_step_is_in_the_file_and_once_on_the_console(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = Status(tmp_path / "status.json", console=tmp_path / "console", boot_id="boot-1")
    with pytest.raises(NodeError), status.step("packages"):
        raise NodeError("no route\nto the mirror")
    line = "slurm-cluster: FAILED step=packages reason=no route to the mirror\n"
    assert (tmp_path / "console").read_text() == line
    assert capsys.readouterr().err == line
    found = json.loads((tmp_path / "status.json").read_text())
    assert (found["state"], found["step"], found["reason"]) == ("failed", "packages", "no route\nto the mirror")
    assert found["steps"][0]["ended"] is not None


def test_a_console_that_cannot_be_written_hides_nothing(tmp_path: Path) -> None:
    status = Status(tmp_path / "status.json", console=tmp_path / "no" / "console", boot_id="boot-1")
    with pytest.raises(NodeError), status.step("packages"):
        raise NodeError("why")
    assert json.loads((tmp_path / "status.json").read_text())["reason"] == "why"


def test_the_boot_id_is_the_kernels(tmp_path: Path) -> None:
    status = Status(tmp_path / "status.json", console=tmp_path / "console")
    status.ready()
    kernel = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert json.loads((tmp_path / "status.json").read_text())["boot_id"] == kernel


def test_a_long_reason_stays_one_short_line() -> None:
    assert len(failure_line("x", "y\n" * 10_000)) < 1600


def test_identity_is_what_user_data_wrote(tmp_path: Path) -> None:
    path = tmp_path / "node.json"
    path.write_text('{"parameter_path": "/p", "role": "worker", "node_name": "cpu-static-1"}')
    found = identity.read(path)
    assert (found.parameter_path, found.role, found.node_name) == ("/p", Role.WORKER, "cpu-static-1")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"role": "head"}',
        '{"parameter_path": "/p", "role": "login", "node_name": null}',
        '{"parameter_path": "/p", "role": "worker", "node_name": null}',
        '{"parameter_path": "/p", "role": "head", "node_name": "cpu-static-1"}',
    ],
)
def test_identity_that_is_none_says_what_to_do(tmp_path: Path, text: str) -> None:
    path = tmp_path / "node.json"
    path.write_text(text)
    with pytest.raises(NodeError, match="replace the instance"):
        identity.read(path)


QUERY = "dpkg-query --show --showformat=${db:Status-Abbrev} ${Package}"


def test_installed_and_held_packages_are_not_missing_and_removed_ones_are() -> None:
    run = Programs({QUERY: "ii  munge\nhi  slurmd\nrc  nftables\n"})
    assert packages.missing(run, ["munge", "slurmd", "nftables", "dbus"]) == ["nftables", "dbus"]


def test_apt_waits_for_locks_asks_nothing_and_gives_the_timers_back() -> None:
    clock = Clock()
    run = Programs({"systemctl is-enabled --quiet apt-daily-upgrade.timer": 1})
    packages.apt(run, ["munge"], sleep=clock.sleep, clock=clock)
    apt = run.called("apt-get")
    assert [line.rsplit(" -y ", 1)[1] for line in apt] == [
        "-o APT::Update::Error-Mode=any update",
        "install --no-install-recommends munge",
    ]
    for line in apt:
        assert "DPkg::Lock::Timeout=20" in line
        assert "--force-confold" in line
        environment = run.environments[run.calls.index(line)]
        assert environment is not None
        assert environment["DEBIAN_FRONTEND"] == "noninteractive"
        assert environment["NEEDRESTART_MODE"] == "a"
    assert run.calls.index(run.called("systemctl stop")[0]) < run.calls.index(apt[0])
    assert run.called("systemctl start") == ["systemctl start --no-block apt-daily.timer"]


def test_apt_tries_again_while_the_mirror_is_away_and_repairs_what_was_cut_off() -> None:
    clock = Clock()
    run = Programs({"apt-get": [CommandError("mirror"), CommandError("mirror"), ""]})
    packages.apt(run, ["munge"], sleep=clock.sleep, clock=clock)
    assert len(run.called("dpkg --configure -a")) == 2


def test_apt_gives_up_with_the_mirrors_words() -> None:
    clock = Clock()
    run = Programs({"apt-get": CommandError("Could not resolve deb.debian.org")})
    with pytest.raises(NodeError, match=r"install munge: Could not resolve deb\.debian\.org: the subnet needs a route"):
        packages.apt(run, ["munge"], sleep=clock.sleep, clock=clock)
    assert 600 <= clock.now < 700
    assert run.called("systemctl start") != []


def test_all_of_slurm_is_held_and_nothing_else() -> None:
    rows = "ii  slurm-wlm slurmd\nhi  slurm-wlm slurm-client\nii  munge munge\nii  slurm-wlm libslurm42t64\n"
    run = Programs({"dpkg-query": rows})
    assert packages.hold_slurm(run) == ["slurmd", "libslurm42t64"]
    assert run.called("apt-mark") == ["apt-mark hold slurmd libslurm42t64"]
    assert packages.hold_slurm(Programs({"dpkg-query": rows.replace("ii  slurm-wlm", "hi  slurm-wlm")})) == []


class Accounts:
    """Users and groups of a machine, by name: (uid, gid)."""

    def __init__(self, known: dict[str, tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
        self.known = known
        monkeypatch.setattr(pwd, "getpwnam", self.by_name)
        monkeypatch.setattr(pwd, "getpwuid", lambda uid: self.by_number(0, uid))
        monkeypatch.setattr(grp, "getgrgid", lambda gid: self.by_number(1, gid))

    def by_name(self, name: str) -> pwd.struct_passwd:
        uid, gid = self.known[name]
        return pwd.struct_passwd((name, "x", uid, gid, "", "/", "/bin/sh"))

    def by_number(self, position: int, number: int) -> tuple[str]:
        for name, ids in self.known.items():
            if ids[position] == number:
                return (name,)
        raise KeyError(number)


def test_users_are_made_before_packages_choose_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    Accounts({"admin": (1000, 1000)}, monkeypatch)
    run = Programs()
    users.ensure(run, "admin")
    assert run.called("groupadd") == ["groupadd --system --gid 64030 slurm", "groupadd --system --gid 950 munge"]
    assert [line.split()[3] for line in run.called("useradd")] == ["64030", "950"]


def test_users_of_a_baked_image_are_taken_as_they_are_where_that_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    Accounts({"admin": (1000, 1000), "slurm": (64030, 64030), "munge": (100, 101)}, monkeypatch)
    run = Programs()
    users.ensure(run, "admin")
    assert run.calls == []


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        ({"slurm": (998, 998)}, r"user slurm has uid 998 and gid 998 in this image, every node needs 64030"),
        ({"slurm": (64030, 100)}, r"user slurm has uid 64030 and gid 100"),
        ({"other": (64030, 5)}, r"uid 64030, needed for slurm, belongs to 'other'"),
        ({"other": (5, 64030)}, r"gid 64030, needed for slurm, belongs to 'other'"),
        ({"other": (950, 950)}, r"uid 950, needed for munge, belongs to 'other'"),
        ({"admin": (1001, 1000)}, r"job user 'admin' has uid 1001: it must have uid 1000"),
        ({"admin": None}, r"job user 'admin' does not exist: it must have uid 1000"),
    ],
)
def test_users_with_other_numbers_stop_the_node(
    monkeypatch: pytest.MonkeyPatch, known: dict[str, tuple[int, int] | None], reason: str
) -> None:
    accounts: dict[str, tuple[int, int] | None] = {"admin": (1000, 1000), **known}
    Accounts({name: ids for name, ids in accounts.items() if ids}, monkeypatch)
    with pytest.raises(NodeError, match=reason):
        users.ensure(Programs(), "admin")


@pytest.mark.parametrize(("role", "daemon"), [(Role.HEAD, "slurmctld"), (Role.WORKER, "slurmd")])
def test_units_are_written_once_and_are_valid(tmp_path: Path, role: Role, daemon: str) -> None:
    run = Programs()
    assert units.install(run, role, Path("/etc/slurm-cluster/metadata-guard.nft"), unit_dir=tmp_path)
    assert not units.install(run, role, Path("/etc/slurm-cluster/metadata-guard.nft"), unit_dir=tmp_path)
    assert run.called("systemctl daemon-reload") == ["systemctl daemon-reload"]
    assert (tmp_path / f"{daemon}.service.d" / "slurm-cluster.conf").exists()
    requirement = (tmp_path / "munge.service.d" / "slurm-cluster.conf").read_text()
    assert f"Requires={units.METADATA_GUARD}\nAfter={units.METADATA_GUARD}" in requirement
    for unit in tmp_path.glob("*.service"):
        text = unit.read_text().replace(str(COMMAND), "/bin/true").replace("/usr/sbin/nft", "/bin/true")
        unit.write_text(text)
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False
        )
        assert [line for line in done.stderr.splitlines() if unit.name in line] == []


def test_a_unit_that_was_skipped_is_not_taken_for_started() -> None:
    run = Programs({"systemctl is-active": 3, "journalctl": "condition not met\n"})
    with pytest.raises(NodeError, match=r"slurmctld\.service does not run: condition not met"):
        units.restart(run, "slurmctld.service")


def test_a_unit_that_fails_tells_its_journal() -> None:
    run = Programs({"systemctl restart": 1, "journalctl": "fatal: a\nfatal: b\n"})
    with pytest.raises(NodeError, match=r"munge\.service does not start: fatal: a \| fatal: b"):
        units.restart(run, "munge.service")


def test_waiting_for_a_unit_ends() -> None:
    clock = Clock()
    run = Programs({"systemctl is-active": [3, 3, 0]})
    units.start_and_wait(run, "slurmd.service", seconds=5, restart_first=False, sleep=clock.sleep, clock=clock)
    assert run.calls[0] == "systemctl start --no-block slurmd.service"
    with pytest.raises(NodeError, match=r"slurmd\.service does not run after 5 seconds: fatal"):
        units.start_and_wait(
            Programs({"systemctl is-active": 3, "journalctl": "fatal\n"}),
            "slurmd.service",
            seconds=5,
            restart_first=True,
            sleep=clock.sleep,
            clock=clock,
        )


KEY = b"k" * 64


@pytest.fixture
def munge_user(monkeypatch: pytest.MonkeyPatch) -> None:
    Accounts({"munge": (UID, GID)}, monkeypatch)


@pytest.mark.usefixtures("munge_user")
def test_munge_is_restarted_for_another_key_only(tmp_path: Path) -> None:
    key_file = tmp_path / "munge.key"
    run = Programs({"munge --no-input": "MUNGE:credential"})
    assert munge.start(run, KEY, key_file=key_file)
    assert (key_file.read_bytes(), stat.S_IMODE(key_file.stat().st_mode)) == (KEY, 0o400)
    assert run.called("systemctl restart") == ["systemctl restart munge.service"]
    assert run.inputs[run.calls.index("unmunge")] == "MUNGE:credential"
    assert not munge.start(run, KEY, key_file=key_file)
    assert len(run.called("systemctl restart")) == 1
    assert munge.start(run, KEY + b"2", key_file=key_file)
    assert len(run.called("systemctl restart")) == 2


@pytest.mark.usefixtures("munge_user")
def test_the_key_is_there_before_munge_starts(tmp_path: Path) -> None:
    key_file = tmp_path / "munge.key"
    seen: list[bytes] = []

    def restart(_: list[str]) -> str:
        seen.append(key_file.read_bytes())
        return ""

    key_file.write_bytes(b"the package's own key, another one on each node")
    munge.start(Programs({"systemctl restart": restart}), KEY, key_file=key_file)
    assert seen == [KEY]


@pytest.mark.usefixtures("munge_user")
def test_credentials_that_do_not_work_stop_the_node(tmp_path: Path) -> None:
    with pytest.raises(NodeError, match="its credentials do not work: unmunge: exit status 15"):
        munge.start(Programs({"unmunge": 15}), KEY, key_file=tmp_path / "munge.key")


class Secrets:
    """Secrets Manager with one secret."""

    def __init__(self, value: str) -> None:
        self.value = value

    def get_secret_value(self, *, SecretId: str) -> dict[str, str]:
        assert SecretId == cluster_spec().munge_key_secret_arn
        return {"SecretString": self.value}


@pytest.mark.parametrize("length", [0, 31, 1025])
def test_a_secret_that_munge_could_not_use_is_refused(length: int) -> None:
    with pytest.raises(NodeError, match=f"holds {length} bytes, a munge key has 32 to 1024"):
        munge.fetch_key(Secrets("x" * length), cluster_spec().munge_key_secret_arn)  # type: ignore[arg-type]


def test_the_secret_string_is_the_key() -> None:
    assert munge.fetch_key(Secrets("x" * 32), cluster_spec().munge_key_secret_arn) == b"x" * 32  # type: ignore[arg-type]


def test_guard_rules_of_head_and_worker() -> None:
    for role in Role:
        text = metadata_guard.render(role, job_credentials=False)
        path = Path(__file__).with_name("golden") / f"metadata-guard-{role.value}.nft"
        if os.environ.get("UPDATE_GOLDEN"):
            path.write_text(text)
        assert text == path.read_text()
    assert "chain" not in metadata_guard.render(Role.HEAD, job_credentials=True)


def test_guard_is_loaded_once_and_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "guard.nft"
    # Not there at first, there after the restart.
    run = Programs({"nft list table": [1, 0]})
    assert metadata_guard.ensure(run, Role.WORKER, job_credentials=False, rules_file=path)
    assert not metadata_guard.ensure(run, Role.WORKER, job_credentials=False, rules_file=path)
    assert len(run.called(f"systemctl restart {units.METADATA_GUARD}")) == 1
    assert metadata_guard.ensure(run, Role.HEAD, job_credentials=False, rules_file=path)


def test_a_guard_that_somebody_flushed_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "guard.nft"
    metadata_guard.ensure(Programs(), Role.WORKER, job_credentials=False, rules_file=path)
    run = Programs({"nft list table": [1, 0]})
    assert metadata_guard.ensure(run, Role.WORKER, job_credentials=False, rules_file=path)


def test_a_guard_that_does_not_load_stops_the_node(tmp_path: Path) -> None:
    refused = Programs({"systemctl restart": 1, "journalctl": "Operation not permitted\n"})
    with pytest.raises(NodeError, match=r"so no job may run here: .* Operation not permitted"):
        metadata_guard.ensure(refused, Role.WORKER, job_credentials=False, rules_file=tmp_path / "guard.nft")
    vanished = Programs({"nft list table": 1})
    with pytest.raises(NodeError, match="was loaded but is not there"):
        metadata_guard.ensure(vanished, Role.WORKER, job_credentials=False, rules_file=tmp_path / "guard.nft")


def test_a_cluster_that_lets_jobs_have_credentials_has_no_guard(tmp_path: Path) -> None:
    run = Programs({"nft list table": [0, 1, 1, 1]})
    assert metadata_guard.ensure(run, Role.WORKER, job_credentials=True, rules_file=tmp_path / "guard.nft")
    assert not metadata_guard.ensure(run, Role.WORKER, job_credentials=True, rules_file=tmp_path / "guard.nft")

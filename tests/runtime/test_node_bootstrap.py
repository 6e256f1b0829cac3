"""Bootstrap as a whole, and what it fetches: metadata, parameters, the bundle."""

from __future__ import annotations

import http.server
import json
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from moto import mock_aws

from slurm_cluster.model.flows import Role
from slurm_cluster.model.spec import BundleSpec, PartitionSpec
from slurm_cluster.runtime.node import aws, bootstrap, bundle, command_line, parameters
from slurm_cluster.runtime.node.errors import NodeError
from slurm_cluster.runtime.node.identity import NodeIdentity
from slurm_cluster.runtime.node.instance_metadata import InstanceMetadata
from slurm_cluster.runtime.node.status import Status
from tests.runtime.node_doubles import Clock, Programs, cluster_spec

REPOSITORY = Path(__file__).resolve().parents[2]
PATH = "/slurm-cluster/stack/0f0f0f0f"
HEAD = NodeIdentity(parameter_path=PATH, role=Role.HEAD, node_name=None)
WORKER = NodeIdentity(parameter_path=PATH, role=Role.WORKER, node_name="cpu-static-1")


class Imds(http.server.BaseHTTPRequestHandler):
    """A metadata service of version 2 that refuses the first requests."""

    refusals = 0

    def do_PUT(self) -> None:
        if Imds.refusals:
            Imds.refusals -= 1
            self._answer(503, "")
        else:
            fine = self.path == "/latest/api/token" and self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
            self._answer(200 if fine else 400, "TOKEN")

    def do_GET(self) -> None:
        values = {"placement/region": "eu-central-1", "services/domain": "amazonaws.com.cn", "local-ipv4": "10.0.0.5"}
        value = values.get(self.path.removeprefix("/latest/meta-data/"))
        if self.headers["X-aws-ec2-metadata-token"] != "TOKEN":
            self._answer(401, "")
        else:
            self._answer(200 if value else 404, value or "")

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def metadata() -> Iterator[InstanceMetadata]:
    Imds.refusals = 0
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Imds) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield InstanceMetadata(f"http://127.0.0.1:{server.server_port}", sleep=lambda _: None)
        server.shutdown()
        thread.join()


def test_metadata_is_read_with_a_token_and_past_any_proxy(
    metadata: InstanceMetadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert (metadata.region, metadata.url_suffix, metadata.private_address) == (
        "eu-central-1",
        "amazonaws.com.cn",
        "10.0.0.5",
    )


def test_metadata_that_comes_late_is_waited_for_and_missing_values_are_not(metadata: InstanceMetadata) -> None:
    Imds.refusals = 5
    assert metadata.region == "eu-central-1"
    with pytest.raises(NodeError, match="instance metadata instance-id: HTTP Error 404"):
        _ = metadata.instance_id


def test_no_metadata_service_says_what_the_instance_needs() -> None:
    with pytest.raises(NodeError, match="the instance needs MetadataOptions with HttpEndpoint enabled"):
        _ = InstanceMetadata("http://127.0.0.1:9", sleep=lambda _: None).region


def refusal(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": f"{code} it is"}}, "GetParameter")


@pytest.mark.parametrize(
    ("problem", "seconds"),
    [
        (refusal("AccessDeniedException"), 60),
        (refusal("UnauthorizedOperation"), 60),
        (refusal("ThrottlingException"), 300),
        (EndpointConnectionError(endpoint_url="https://ssm"), 300),
    ],
)
def test_patience_with_aws_ends_sooner_when_it_refuses(problem: Exception, seconds: float) -> None:
    clock = Clock()

    def call() -> str:
        raise problem

    with pytest.raises(NodeError, match="read it: "):
        aws.patiently("read it", call, sleep=clock.sleep, clock=clock)
    assert seconds - 10 <= clock.now <= seconds


def test_patience_with_aws_is_rewarded() -> None:
    clock = Clock()
    answers: list[Any] = [refusal("AccessDenied"), EndpointConnectionError(endpoint_url="https://ssm"), "value"]

    def call() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    assert aws.patiently("read it", call, sleep=clock.sleep, clock=clock) == "value"


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[aws.Aws]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        account = aws.Aws("eu-central-1")
        for name, value in {
            "cluster": cluster_spec().to_json(),
            "bundle": BundleSpec(bucket="assets", key="dir/first.zip").to_json(),
        }.items():
            account.ssm.put_parameter(Name=f"{PATH}/{name}", Value=value, Type="String")
        yield account


def test_parameters_are_what_the_constructs_wrote(account: aws.Aws) -> None:
    assert parameters.cluster(account.ssm, PATH) == cluster_spec()
    assert parameters.bundle(account.ssm, PATH) == BundleSpec(bucket="assets", key="dir/first.zip")
    assert parameters.partitions(account.ssm, PATH) == ()


def test_many_partitions_are_all_read_in_order(account: aws.Aws) -> None:
    made = [
        PartitionSpec(name=f"p{number:02}", instance_type="c5.large", static_nodes=1, default=False)
        for number in range(25)
    ]
    for item in reversed(made):
        account.ssm.put_parameter(Name=f"{PATH}/partitions/{item.name}", Value=item.to_json(), Type="String")
    assert parameters.partitions(account.ssm, PATH) == tuple(made)


def pack(account: aws.Aws, key: str, files: dict[str, str], directory: Path) -> BundleSpec:
    archive = directory / "upload.zip"
    with zipfile.ZipFile(archive, "w") as stream:
        for name, text in files.items():
            stream.writestr(name, text)
    if not account.s3.list_buckets()["Buckets"]:
        boto3.client("s3", region_name="us-east-1").create_bucket(Bucket="assets")
    account.s3.upload_file(str(archive), "assets", key)
    return BundleSpec(bucket="assets", key=key)


def test_a_new_bundle_takes_the_place_of_the_old_one(account: aws.Aws, tmp_path: Path) -> None:
    install = tmp_path / "opt"
    first = pack(account, "dir/first.zip", {"slurm_cluster/__init__.py": "1"}, tmp_path)
    assert bundle.ensure(account.s3, first, install_dir=install)
    assert not bundle.ensure(account.s3, first, install_dir=install)
    second = pack(account, "dir/second.zip", {"slurm_cluster/__init__.py": "2"}, tmp_path)
    assert bundle.ensure(account.s3, second, install_dir=install)
    assert (install / "current" / "slurm_cluster" / "__init__.py").read_text() == "2"
    assert sorted(path.name for path in install.iterdir()) == ["current", "first", "second"]
    # Back to the first, as a rollback of the stack would have it: no download.
    account.s3.delete_object(Bucket="assets", Key="dir/first.zip")
    assert bundle.ensure(account.s3, first, install_dir=install)
    assert (install / "current").readlink() == Path("first")


def test_a_bundle_that_does_not_come_leaves_the_old_one_in_use(
    account: aws.Aws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install = tmp_path / "opt"
    bundle.ensure(account.s3, pack(account, "dir/first.zip", {"a": "1"}, tmp_path), install_dir=install)
    monkeypatch.setattr(aws, "_PAUSE", 1000)
    with pytest.raises(NodeError, match=r"download the node bundle s3://assets/dir/gone\.zip"):
        bundle.ensure(account.s3, BundleSpec(bucket="assets", key="dir/gone.zip"), install_dir=install)
    assert sorted(path.name for path in install.iterdir()) == ["current", "first"]


def test_the_command_does_not_import_what_lies_in_the_current_directory(tmp_path: Path) -> None:
    command, install = tmp_path / "bin" / "slurm-cluster", tmp_path / "opt"
    package = install / "current" / "slurm_cluster" / "runtime" / "node"
    package.mkdir(parents=True)
    for folder in (package, *package.parents[:2]):
        (folder / "__init__.py").touch()
    (package / "__main__.py").write_text("import sys; print('the right one', *sys.argv[1:])")
    trap = tmp_path / "trap" / "slurm_cluster"
    trap.mkdir(parents=True)
    (trap / "__init__.py").write_text("raise SystemExit('the wrong one')")
    assert bundle.write_command(command=command, install_dir=install)
    assert not bundle.write_command(command=command, install_dir=install)
    assert "-m slurm_cluster.doctor" in command.with_name("slurm-doctor").read_text()
    done = subprocess.run([command, "apply"], cwd=trap.parent, capture_output=True, text=True, check=False)
    assert done.stdout == "the right one apply\n", done.stderr


def test_the_bundle_runs_without_the_rest_of_the_package(tmp_path: Path) -> None:
    """What the constructs pack, model and runtime/node, imports nothing else of the package."""
    package = tmp_path / "slurm_cluster"
    for part in ("model", "runtime/node"):
        shutil.copytree(
            REPOSITORY / "slurm_cluster" / part, package / part, ignore=shutil.ignore_patterns("__pycache__")
        )
    for part in ("__init__.py", "runtime/__init__.py"):
        shutil.copy(REPOSITORY / "slurm_cluster" / part, package / part)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "slurm_cluster.runtime.node", "--help"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "smoke-test" in done.stdout


@pytest.mark.parametrize("command", ["apply", "smoke-test"])
def test_commands_of_the_head_refuse_a_worker(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setattr(command_line.identity, "read", lambda: WORKER)  # type: ignore[attr-defined]
    with pytest.raises(NodeError, match=f"{command} runs on the head, this is worker cpu-static-1"):
        command_line.main([command])


def node(who: NodeIdentity, run: Programs | None = None) -> bootstrap.Node:
    return bootstrap.Node(who, run=run or Programs())


class Steps:
    """Steps that write down that they ran, in place of the real ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failing: str = "", *, new_bundle: bool = False) -> None:
        self.ran: list[str] = []
        real = bootstrap.STEPS
        monkeypatch.setattr(
            bootstrap,
            "STEPS",
            {role: tuple((name, self._step(name, failing)) for name, _ in steps) for role, steps in real.items()},
        )
        monkeypatch.setattr(bootstrap, "use_named_bundle", lambda _: new_bundle)

    def _step(self, name: str, failing: str) -> Callable[[bootstrap.Node], None]:
        def step(_: bootstrap.Node) -> None:
            self.ran.append(name)
            if name == failing:
                raise NodeError("the reason")

        return step


def never() -> None:
    raise AssertionError("must not start again")


@pytest.fixture
def status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Status:
    monkeypatch.setattr(bootstrap, "STATE_DIR", tmp_path)
    return Status(tmp_path / "status.json", console=tmp_path / "console", boot_id="boot-1")


@pytest.mark.parametrize(
    ("who", "last"),
    [(HEAD, ["names", "state-volume", "slurmctld"]), (WORKER, ["names", "head", "slurmd"])],
)
def test_steps_run_in_order_and_the_daemon_is_last(
    monkeypatch: pytest.MonkeyPatch, status: Status, tmp_path: Path, who: NodeIdentity, last: list[str]
) -> None:
    steps = Steps(monkeypatch)
    assert bootstrap.bootstrap(node(who), status, again=never) == 0
    assert steps.ran[-3:] == last
    assert steps.ran[:7] == ["units", "agent", "cluster", "users", "packages", "metadata-guard", "munge"]
    found = json.loads((tmp_path / "status.json").read_text())
    assert (found["state"], found["step"]) == ("ready", last[-1])
    assert [step["name"] for step in found["steps"]] == ["bundle", *steps.ran]
    assert all(step["ended"] for step in found["steps"])


def test_users_come_before_packages_and_the_guard_before_the_key() -> None:
    for role in Role:
        names = [name for name, _ in bootstrap.STEPS[role]]
        assert names.index("users") < names.index("packages") < names.index("metadata-guard") < names.index("munge")


@pytest.mark.parametrize("failing", [name for name, _ in bootstrap.STEPS[Role.HEAD]])
def test_a_failing_step_is_the_last_one_and_is_named(
    monkeypatch: pytest.MonkeyPatch, status: Status, tmp_path: Path, failing: str
) -> None:
    steps = Steps(monkeypatch, failing)
    assert bootstrap.bootstrap(node(HEAD), status, again=never) == 1
    assert steps.ran[-1] == failing
    assert (tmp_path / "console").read_text() == f"slurm-cluster: FAILED step={failing} reason=the reason\n"
    assert json.loads((tmp_path / "status.json").read_text())["state"] == "failed"


def test_another_bundle_takes_over_before_any_step(monkeypatch: pytest.MonkeyPatch, status: Status) -> None:
    class Replaced(BaseException):
        pass

    def again() -> None:
        raise Replaced

    steps = Steps(monkeypatch, new_bundle=True)
    with pytest.raises(Replaced):
        bootstrap.bootstrap(node(HEAD), status, again=again)
    assert steps.ran == []


FILE_STATE = "systemctl show --property=UnitFileState --value"
INSTALLED = "".join(
    f"ii  {name}\n" for name in ("munge", "nftables", "slurm-client", "slurmd", "dbus", "python3-boto3")
)


def test_an_image_with_the_packages_in_it_never_meets_apt() -> None:
    run = Programs(
        {
            "dpkg-query --show --showformat=${db:Status-Abbrev} ${Package}": INSTALLED,
            f"{FILE_STATE} munge.service": "enabled\n",
            f"{FILE_STATE} slurmd.service": ["masked\n", "enabled\n"],
            f"{FILE_STATE} slurmctld.service": "disabled\n",
        }
    )
    bootstrap.ensure_packages(node(WORKER, run))
    assert run.called("apt-get") == []
    assert [line for line in run.called("systemctl") if not line.startswith(FILE_STATE)] == [
        "systemctl unmask --quiet slurmd.service",
        "systemctl disable --quiet munge.service slurmd.service",
        "systemctl mask --quiet slurmctld.service",
    ]


def test_units_that_are_as_they_should_be_are_left_alone() -> None:
    run = Programs(
        {
            "dpkg-query --show --showformat=${db:Status-Abbrev} ${Package}": INSTALLED,
            f"{FILE_STATE} munge.service": "disabled\n",
            f"{FILE_STATE} slurmd.service": "disabled\n",
            f"{FILE_STATE} slurmctld.service": "masked\n",
        }
    )
    bootstrap.ensure_packages(node(WORKER, run))
    assert [line for line in run.called("systemctl") if not line.startswith(FILE_STATE)] == []


def test_no_daemon_starts_while_packages_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    used = [f"{FILE_STATE} munge.service", f"{FILE_STATE} slurmctld.service"]
    run = Programs({unit: ["disabled\n", "masked\n", "enabled\n"] for unit in used})
    monkeypatch.setattr(bootstrap.packages, "apt", lambda run, wanted: run(["apt-get", *wanted]))  # type: ignore[attr-defined]
    bootstrap.ensure_packages(node(HEAD, run))
    assert run.called("apt-get") == ["apt-get munge nftables slurm-client slurmctld xfsprogs python3-boto3"]
    masked = run.calls.index("systemctl mask --quiet munge.service slurmctld.service")
    installed = run.calls.index(run.called("apt-get")[0])
    assert masked < installed < run.calls.index("systemctl unmask --quiet munge.service slurmctld.service")

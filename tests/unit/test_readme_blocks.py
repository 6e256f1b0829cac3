"""README's code runs: Python blocks are executed, commands are checked against what they name."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import botocore.session
import pytest
from botocore import xform_name

import app

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
# typed on the cluster; the rehearsal runs these programs there
SLURM_COMMANDS = {"sinfo", "srun"}


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int

    @property
    def name(self) -> str:
        return f"README.md:{self.line}"


def blocks(*languages: str) -> list[Block]:
    found = [Block(m["language"], m["text"], README[: m.start()].count("\n") + 1) for m in FENCE.finditer(README)]
    return [block for block in found if block.language in languages]


def commands() -> list[tuple[str, str]]:
    """Every command line of the README with where it stands; continued lines are joined."""
    found = []
    for block in blocks("console"):
        lines = block.text.replace("\\\n", " ").splitlines()
        found += [(block.name, line.removeprefix("$ ")) for line in lines if line.startswith("$ ")]
    return found


def is_test_file(block: Block) -> bool:
    return "def test_" in block.text


def run_python(block: Block, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a block as a user would: as a file of its own, beside an installed package."""
    file = folder / ("test_block.py" if is_test_file(block) else "block.py")
    file.write_text(block.text)
    program = [sys.executable, *arguments, file.name]
    environment = {
        "PYTHONPATH": str(ROOT),
        "PATH": "/usr/bin:/bin",
        "JSII_NODE": os.environ["JSII_NODE"],
        "CDK_OUTDIR": "cdk.out",
    }
    return subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_every_block_says_its_language() -> None:
    fences = [line for line in README.splitlines() if "```" in line]
    # an indented or unnamed block would go unchecked
    assert len(fences) == 2 * len(blocks("python", "console"))


@pytest.mark.parametrize(
    "block", [block for block in blocks("python") if not is_test_file(block)], ids=lambda b: b.name
)
def test_python_blocks_synthesize(block: Block, tmp_path: Path) -> None:
    done = run_python(block, tmp_path)
    assert done.returncode == 0, done.stderr
    templates = list((tmp_path / "cdk.out").glob("*.template.json"))
    resources = [json.loads(path.read_text())["Resources"].values() for path in templates]
    assert any(item["Type"] == "AWS::EC2::Instance" for each in resources for item in each)


@pytest.mark.parametrize("block", [block for block in blocks("python") if is_test_file(block)], ids=lambda b: b.name)
def test_test_recipes_pass_and_notice_a_change(block: Block, tmp_path: Path) -> None:
    first = run_python(block, tmp_path, "-m", "pytest", "--snapshot-update")
    assert first.returncode == 0, first.stdout
    again = run_python(block, tmp_path, "-m", "pytest")
    assert again.returncode == 0, again.stdout
    (snapshot,) = tmp_path.rglob("__snapshots__/**/*.*")
    snapshot.write_text(snapshot.read_text().replace("6817", "6816"))
    changed = run_python(block, tmp_path, "-m", "pytest")
    assert changed.returncode == 1, changed.stdout


@pytest.mark.parametrize(("where", "line"), commands())
def test_commands_name_things_that_exist(where: str, line: str) -> None:
    program, *arguments = shlex.split(line)
    if program in SLURM_COMMANDS:
        return
    check = {"make": check_make, "aws": check_aws}
    assert program in check, f"{where}: no check knows the program of `{line}`"
    check[program](arguments)


def check_make(arguments: list[str]) -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(arguments) <= targets


def check_aws(arguments: list[str]) -> None:
    """The service has the operation and the operation has the options, by botocore's model of the API."""
    service, operation, *options = arguments
    model = botocore.session.get_session().get_service_model(service)
    operations = {xform_name(name, "-"): name for name in model.operation_names}
    shape = model.operation_model(operations[operation]).input_shape
    known = {f"--{xform_name(name, '-')}" for name in shape.members} if shape else set()
    assert {word for word in options if word.startswith("--")} <= known


def test_options_table_has_every_context_key_of_the_app_and_no_other() -> None:
    table = README.split("### Options")[1].split("## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(app.CONTEXT)


def test_context_that_the_text_passes_is_known_to_the_app() -> None:
    passed = re.findall(r"-c (\w+)=", README)
    assert passed
    assert set(passed) <= set(app.CONTEXT)

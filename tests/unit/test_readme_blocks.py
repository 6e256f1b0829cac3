"""The code in README and docs runs: Python blocks are executed, commands are checked against what they name."""

from __future__ import annotations

import itertools
import re
import runpy
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import botocore.session
import pytest
from botocore import xform_name

import app
from scripts import doctor as carried_doctor
from slurm_cluster.doctor import command_line as doctor
from slurm_cluster.reachability import command_line
from slurm_cluster.rehearsal import cli
from tests import readme_repository

ROOT = Path(__file__).parents[2]
DOCUMENTS = {path.name: path.read_text() for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}
README = DOCUMENTS["README.md"]
FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = ("python", "console", "text", "yaml")
# typed on the cluster; the rehearsal runs these programs there
NODE_COMMANDS = {"sinfo", "srun", "scontrol", "systemctl", "journalctl", "timedatectl"}


@dataclass(frozen=True)
class Block:
    document: str
    language: str
    text: str
    line: int

    @property
    def name(self) -> str:
        return f"{self.document}:{self.line}"


def blocks(*languages: str) -> list[Block]:
    found = [
        Block(document, match["language"], match["text"], text[: match.start()].count("\n") + 1)
        for document, text in DOCUMENTS.items()
        for match in FENCE.finditer(text)
    ]
    return [block for block in found if block.language in languages]


def apps() -> list[Block]:
    """Every block that is an app; what is a test runs in the project that it belongs to."""
    project = readme_repository.files().values()
    return [block for block in blocks("python") if block.text not in project or "app.synth()" in block.text]


def commands() -> list[tuple[str, str]]:
    """Every command line with where it stands; continued lines are joined."""
    found = []
    for block in blocks("console"):
        lines = block.text.replace("\\\n", " ").splitlines()
        found += [(block.name, line.removeprefix("$ ")) for line in lines if line.startswith("$ ")]
    # a rehearsal runs those of the project of four files
    return [item for item in found if item[1] not in readme_repository.commands()]


def test_every_block_says_its_language() -> None:
    fences = [line for text in DOCUMENTS.values() for line in text.splitlines() if "```" in line]
    # an indented or unnamed block would go unchecked
    assert len(fences) == 2 * len(blocks(*LANGUAGES))


@pytest.mark.parametrize("block", apps(), ids=lambda block: block.name)
def test_python_blocks_synthesize(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "app.py").write_text(block.text)
    monkeypatch.chdir(tmp_path)
    synthesized: list[dict[str, Any]] = []
    synth = cdk.App.synth

    def observed(self: cdk.App, **options: Any) -> Any:
        assembly = synth(self, **options)
        synthesized.extend(stack.template for stack in assembly.stacks)
        return assembly

    monkeypatch.setattr(cdk.App, "synth", observed)
    # in this process: a new one would load aws_cdk once for each block
    runpy.run_path("app.py", run_name="__main__")
    kinds = [item["Type"] for template in synthesized for item in template["Resources"].values()]
    assert "AWS::EC2::Instance" in kinds


def test_links_between_documents_lead_somewhere() -> None:
    for name, text in DOCUMENTS.items():
        folder = ROOT if name == "README.md" else ROOT / "docs"
        for target, anchor in re.findall(r"\]\((?!http)([^)#]*)(?:#([^)]*))?\)", text):
            file = (folder / target).resolve() if target else folder / name
            assert file.exists(), f"{name} links to {target}"
            if anchor:
                titles = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
                anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
                assert anchor in anchors, f"{name} links to #{anchor}"


@pytest.mark.parametrize(("where", "line"), commands())
def test_commands_name_things_that_exist(where: str, line: str) -> None:
    words = itertools.dropwhile(lambda word: word == "sudo" or re.match(r"[A-Z_]+=", word), shlex.split(line))
    program, *arguments = words
    if program in NODE_COMMANDS:
        return
    check = {"make": check_make, "aws": check_aws, "python": check_python, "python3": check_application}
    check["slurm-doctor"] = check_doctor
    assert program in check, f"{where}: no check knows the program of `{line}`"
    check[program](arguments)


def check_make(arguments: list[str]) -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(arguments) <= targets


def check_python(arguments: list[str]) -> None:
    option, module, *others = arguments
    assert option == "-m"
    parsers = {"slurm_cluster.rehearsal": cli._parser(), "slurm_cluster.reachability": command_line._parser()}
    parsers["scripts.doctor"] = carried_doctor.parser()
    parsers[module].parse_args(others)


def check_doctor(arguments: list[str]) -> None:
    doctor._parser().parse_args(arguments)


def check_application(arguments: list[str]) -> None:
    """The one file that is started by its name is the doctor."""
    file, *others = arguments
    assert file == carried_doctor.parser().get_default("file").name
    check_doctor(others)


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

"""Who may import what: the node bundle and the rehearsal run where aws_cdk is not, and templates need no rehearsal."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "slurm_cluster"
AWS = {"boto3", "botocore"}
VERDICTS = {f"slurm_cluster.runtime.{file.stem}" for file in (PACKAGE / "runtime").glob("[a-z]*.py")}
CDK = {"aws_cdk", "constructs", "jsii", "cdk_nag"}


def imported(file: Path) -> Iterator[str]:
    """Every module that a file imports when it runs, of a package also the names taken from it."""
    for node in running(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno} has a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def running(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below ``node``, without what only a type checker sees."""
    yield node
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    for child in ast.iter_child_nodes(node):
        yield from running(child)


def is_within(module: str, allowed: set[str]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in allowed)


def offenders(folder: Path, allowed: set[str]) -> list[str]:
    return [
        f"{file.relative_to(ROOT)} imports {module}"
        for file in sorted(folder.rglob("*.py"))
        for module in imported(file)
        if module.split(".")[0] not in sys.stdlib_module_names and not is_within(module, allowed)
    ]


@pytest.mark.parametrize(
    ("folder", "allowed"),
    [
        ("model", {"slurm_cluster.model"}),
        ("runtime/node", {"slurm_cluster.model", "slurm_cluster.runtime.node"} | AWS),
        ("doctor", {"slurm_cluster.model", "slurm_cluster.doctor", "slurm_cluster.runtime.node"} | VERDICTS | AWS),
        ("runtime/functions", {"slurm_cluster.model", "slurm_cluster.runtime.functions"} | VERDICTS | AWS),
    ],
)
def test_what_runs_on_aws_imports_only_what_is_there(folder: str, allowed: set[str]) -> None:
    assert list((PACKAGE / folder).rglob("*.py"))
    assert offenders(PACKAGE / folder, allowed) == []


def test_the_doctor_does_without_boto3() -> None:
    """One function asks for it, and its failure costs only what AWS could tell (test_doctor_account)."""
    users = {file for file in (PACKAGE / "doctor").glob("*.py") for module in imported(file) if is_within(module, AWS)}
    assert users == {PACKAGE / "doctor" / "account.py"}
    at_once = [
        node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.parse((PACKAGE / "doctor" / "account.py").read_text()).body
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert not [module for module in at_once if is_within(str(module), AWS)]


def test_verdicts_are_made_of_plain_data_without_asking_aws() -> None:
    files = sorted((PACKAGE / "runtime").glob("[a-z]*.py"))
    assert files
    allowed = {"slurm_cluster.model"} | VERDICTS
    found = [(file.name, module) for file in files for module in imported(file)]
    assert [item for item in found if is_within(item[1], {"slurm_cluster"}) and not is_within(item[1], allowed)] == []
    assert [item for item in found if item[1].split(".")[0] not in {*sys.stdlib_module_names, "slurm_cluster"}] == []


def test_rehearsal_never_imports_aws_cdk() -> None:
    files = sorted((PACKAGE / "rehearsal").rglob("*.py"))
    assert files
    assert [file.name for file in files for module in imported(file) if is_within(module, CDK)] == []


def test_testing_never_imports_aws_cdk() -> None:
    files = sorted((PACKAGE / "testing").rglob("*.py"))
    assert files
    # the plug-in is loaded in every run of pytest where the package is installed
    assert [file.name for file in files for module in imported(file) if is_within(module, CDK)] == []


def test_constructs_never_import_the_rehearsal_or_cdk_nag() -> None:
    files = [*PACKAGE.glob("*.py"), ROOT / "app.py"]
    found = [(file.name, module) for file in files for module in imported(file)]
    assert [item for item in found if is_within(item[1], {"slurm_cluster.rehearsal"})] == []
    assert [item for item in found if is_within(item[1], {"cdk_nag"}) and item[0] != "app.py"] == []


def test_user_data_is_rendered_without_aws_cdk() -> None:
    assert [module for module in imported(PACKAGE / "user_data.py") if is_within(module, CDK)] == []


def test_proof_needs_no_cdk_and_only_its_live_part_needs_aws() -> None:
    folder = PACKAGE / "reachability"
    allowed = {"slurm_cluster.model", "slurm_cluster.reachability", "yaml"}
    assert list(folder.rglob("*.py"))
    others = [item for item in offenders(folder, allowed) if not item.startswith("slurm_cluster/reachability/live.py")]
    assert others == []
    assert offenders(folder, allowed | AWS) == []

"""The stock image: what it lacks, what it trusts, and a whole run in which nodes install everything themselves."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from slurm_cluster.rehearsal.image import ImageKind, recipe
from slurm_cluster.rehearsal.paths import cache_dir
from tests.rehearsal.session_process import session_process

pytestmark = pytest.mark.rehearsal

INSTALLED_BY = {
    "head": ("python3-boto3", "gpgv", "munge", "nftables", "slurm-client", "slurmctld", "xfsprogs"),
    "cpu-static-1": ("python3-boto3", "gpgv", "munge", "slurmd"),
}


def test_a_run_installs_everything_on_its_nodes_and_passes(tmp_path: Path) -> None:
    options = ("--image", "stock", "--json", str(tmp_path / "report.json"), "--timeline", str(tmp_path / "run.svg"))
    with session_process(tmp_path / "log", *_project(), *options) as run:
        assert run.wait(seconds=900) == 0, run.output
        assert run.left() == []
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["passed"], report["image"]) == (True, "stock")
    assert report["smoke_tests"]["head"]["passed"]
    bootstraps = {span["what"]: span["parts"] for span in report["timeline"] if span["what"].endswith(": bootstrap")}
    assert {"agent", "packages"} <= {part["what"] for part in bootstraps["head: bootstrap"]}
    # the agent needs gpgv, which the image lacks, so that both steps use apt
    assert not any("ssm-agent-key.asc" in line for line in report["not_rehearsed"])
    assert any("ssm-agent-key.asc" in line for line in report["replaced"])
    picture = ElementTree.fromstring((tmp_path / "run.svg").read_text())  # noqa: S314 - made by the code under test
    told = [title.text or "" for title in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert any(re.match(r"head: bootstrap: packages: from", text) for text in told)
    image = _image()
    status = (image / "var/lib/dpkg/status").read_text()
    for package in {name for names in INSTALLED_BY.values() for name in names}:
        assert f"Package: {package}\n" not in status, f"{package} is in the stock image"
        assert list((cache_dir() / "apt/packages").rglob(f"{package}_*.deb")), f"{package} came past the cache"
    assert not (image / recipe.AGENT_UNIT_FILE).exists()
    assert not list((image / "var/lib/apt/lists").glob("*Packages*"))


def _project() -> tuple[Path]:
    return (Path(__file__).parents[2],)


def _image() -> Path:
    found = [path for path in (cache_dir() / "images").glob(f"*-{ImageKind.STOCK.value}-*") if path.suffix == ""]
    return max(found, key=lambda path: path.stat().st_mtime)

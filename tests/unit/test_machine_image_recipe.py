"""The list of what a rehearsed node has that an EC2 instance has not: it grows only on purpose."""

from __future__ import annotations

import subprocess
from pathlib import Path

import boto3
import pytest

from slurm_cluster.model.node_files import OVERRIDE_DIR
from slurm_cluster.rehearsal.cgroups import Version
from slurm_cluster.rehearsal.image import ImageKind, build, mirror, recipe, replaced
from slurm_cluster.runtime.node import packages


def settings(path: Path) -> set[str]:
    return {line for line in path.read_text().splitlines() if line and not line.startswith("#")}


EVERYWHERE = {
    "etc/cloud/cloud.cfg.d/50_rehearsal.cfg",
    "etc/hosts",
    "etc/slurm-cluster/override.d/slurm.conf",
    "usr/lib/python3/dist-packages/rehearsal_datasource/DataSourceEc2.py",
    "usr/lib/python3/dist-packages/rehearsal_datasource/__init__.py",
    "usr/lib/systemd/system/amazon-ssm-agent.service",
}
WITH_CGROUP_V1 = {
    "etc/slurm-cluster/override.d/cgroup.conf",
    "etc/systemd/system/slurmd.service.d/50-rehearsal.conf",
}
OVERRIDES: dict[Version, dict[str, set[str]]] = {
    1: {
        "slurm.conf": {"JobAcctGatherType=jobacct_gather/linux", "SlurmdParameters=config_overrides"},
        "cgroup.conf": {"ConstrainRAMSpace=no", "ConstrainSwapSpace=no"},
    },
    2: {"slurm.conf": {"SlurmdParameters=config_overrides"}},
}


@pytest.mark.parametrize("version", [1, 2])
def test_overrides_are_these_and_every_report_names_them(version: Version) -> None:
    directory = str(OVERRIDE_DIR.relative_to("/"))
    found = {
        Path(path).name: settings(source)
        for path, source in recipe.files(version).items()
        if path.startswith(directory)
    }
    assert found == OVERRIDES[version]
    for kind in ImageKind:
        told = " ".join(replaced(kind, version))
        assert all(setting in told for lines in found.values() for setting in lines)


def test_report_tells_nothing_of_cgroup_v1_where_slurm_runs_with_v2() -> None:
    with_v1, with_v2 = (replaced(ImageKind.BAKED, version) for version in (1, 2))
    of_v1 = [line for line in with_v1 if line not in with_v2]
    assert [line.partition(":")[0] for line in of_v1] == ["cgroup v2", "memory limits of jobs", "memory use of jobs"]
    assert not any("cgroup" in line or "memory limits" in line for line in with_v2)


def test_files_of_the_image_are_these() -> None:
    assert recipe.files(2).keys() == EVERYWHERE
    assert recipe.files(1).keys() == EVERYWHERE | WITH_CGROUP_V1


def test_image_has_what_nodes_install() -> None:
    wanted = {"python3-boto3", *packages.BASE}.union(*packages.BY_ROLE.values())
    assert wanted <= set(recipe.packages(ImageKind.BAKED))
    assert not wanted & set(recipe.packages(ImageKind.STOCK))


def test_no_region_is_given_to_nodes() -> None:
    assert not any("region" in text.lower() for text in recipe.endpoint_files().values())


@pytest.mark.parametrize("home", ["/root", "/etc/skel"])
def test_sdks_find_the_api_by_a_file_that_needs_no_variable(
    home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config"
    config.write_text(recipe.endpoint_files()[f"{home}/.aws/config"])
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    assert boto3.Session().client("ssm", region_name="eu-west-1").meta.endpoint_url == recipe.API_ENDPOINT


def test_digest_follows_packages_and_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    before = recipe.digest("amd64", ImageKind.BAKED, 2, {})
    assert recipe.digest("amd64", ImageKind.BAKED, 2, {}) == before
    others = [
        recipe.digest("arm64", ImageKind.BAKED, 2, {}),
        recipe.digest("amd64", ImageKind.BAKED, 1, {}),
        recipe.digest("amd64", ImageKind.STOCK, 2, {}),
        recipe.digest("amd64", ImageKind.BAKED, 2, {"/etc/key": "one"}),
        recipe.digest("amd64", ImageKind.BAKED, 2, {"/etc/key": "two"}),
    ]
    assert len({before, *others}) == 6
    monkeypatch.setattr(recipe, "NODE_PACKAGES", (*recipe.NODE_PACKAGES, "htop"))
    assert recipe.digest("amd64", ImageKind.BAKED, 2, {}) != before


def test_a_mirror_is_reached_through_the_cache_by_plain_http() -> None:
    assert mirror.through_cache("http://mirror.example/debian") == "http://mirror.example/debian"
    assert mirror.through_cache("https://mirror.example/debian") == "http://HTTPS///mirror.example/debian"


def answer(monkeypatch: pytest.MonkeyPatch, outputs: dict[str, str]) -> None:
    def run(argv: tuple[str, ...], **_: object) -> subprocess.CompletedProcess[str]:
        if argv[0] not in outputs:
            raise FileNotFoundError(argv[0])
        return subprocess.CompletedProcess(argv, 0, outputs[argv[0]], "")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.delenv(mirror.VARIABLE, raising=False)


def test_mirror_is_the_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (
        "|nodesource|https://deb.nodesource.com/node_20.x/\n"
        "Debian|Debian-Security|http://mirror.example/debian-security/\n"
        "Debian|Debian|http://mirror.example/debian/\n"
    )
    answer(monkeypatch, {"apt-get": rows})
    assert mirror.mirror() == "http://mirror.example/debian"


def test_mirror_of_a_host_that_is_no_debian_is_debians(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, {"apt-get": "Ubuntu|Ubuntu|http://archive.ubuntu.com/ubuntu/\n"})
    assert mirror.mirror() == mirror.DEFAULT
    answer(monkeypatch, {})
    assert mirror.mirror() == mirror.DEFAULT


def test_mirror_of_the_environment_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, {"apt-get": "Debian|Debian|http://mirror.example/debian/\n"})
    monkeypatch.setenv(mirror.VARIABLE, "http://chosen.example/debian/")
    assert mirror.mirror() == "http://chosen.example/debian"


def test_proxy_is_apts_else_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://of-environment:1")
    answer(monkeypatch, {"apt-config": "\n"})
    assert mirror.proxy_environment() == {"http_proxy": "http://of-environment:1"}
    answer(monkeypatch, {"apt-config": "http://of-apt:2\n"})
    assert mirror.proxy_environment()["http_proxy"] == "http://of-apt:2"
    answer(monkeypatch, {"apt-config": "DIRECT\n"})
    assert mirror.proxy_environment() == {"http_proxy": "http://of-environment:1"}


def test_the_image_takes_no_modes_from_the_source_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # as `git archive` and a umask of 002 leave it; munged refuses a key below a group-writable /etc
    source, root = tmp_path / "files", tmp_path / "root"
    for folder in (source / "etc", root / "etc"):
        folder.mkdir(parents=True)
        folder.chmod(0o755)
    (source / "etc" / "hosts").write_text("127.0.0.1 localhost\n")
    for path in (source, source / "etc", source / "etc" / "hosts"):
        path.chmod(0o777)
    monkeypatch.setattr(recipe, "_FILE_TREES", {1: (source,), 2: (source,)})
    build._copy_files(root, {"/etc/more": "text"})
    assert (root / "etc").stat().st_mode & 0o777 == 0o755
    assert {path.name: path.stat().st_mode & 0o777 for path in (root / "etc").iterdir()} == {
        "hosts": 0o644,
        "more": 0o644,
    }

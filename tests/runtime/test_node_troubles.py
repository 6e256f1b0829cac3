"""What a bootstrap that tries again says meanwhile, in its status file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from slurm_cluster.runtime.node import aws, packages, troubles
from slurm_cluster.runtime.node.commands import CommandError
from slurm_cluster.runtime.node.errors import NodeError
from slurm_cluster.runtime.node.status import Status
from tests.runtime.node_doubles import Clock, Programs


def test_while_apt_tries_again_the_status_says_why(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    status = Status(path, console=tmp_path / "console", boot_id="boot-1")
    seen: list[str] = []
    clock = Clock()

    def sleep(seconds: float) -> None:
        seen.append(json.loads(path.read_text())["trouble"])
        clock.sleep(seconds)

    locked = CommandError("Could not get lock /var/lib/dpkg/lock-frontend.\nIt is held by process 7 (apt)")
    with status.step("packages"):
        packages.apt(Programs({"apt-get": [locked, ""]}), ["munge"], sleep=sleep, clock=clock)
    assert seen == [
        "could not install munge yet: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 7 (apt)"
    ]
    assert "trouble" not in json.loads(path.read_text())


def test_so_does_who_waits_for_aws(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    status = Status(path, console=tmp_path / "console", boot_id="boot-1")
    clock = Clock()

    def refused() -> None:
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "not yours"}}, "GetSecretValue")

    with pytest.raises(NodeError), status.step("munge"):
        aws.patiently("read secret s", refused, sleep=clock.sleep, clock=clock)
    assert "read secret s: " in json.loads(path.read_text())["trouble"]
    assert "not yours" in json.loads(path.read_text())["trouble"]


def test_nobody_need_listen() -> None:
    troubles.tell("anything")

"""A job must not be able to become the node: who gets the instance role's credentials, and who does not."""

from __future__ import annotations

import pytest

from tests.rehearsal.cluster_user import JOB_USER_UID, ClusterUser

pytestmark = pytest.mark.rehearsal

ASK = """
import json, os, urllib.request
base = "http://169.254.169.254/latest"

def ask(path, method="GET", **headers):
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(base + path, method=method, headers=names)
    return urllib.request.urlopen(request, timeout=5).read().decode()

print("uid", os.getuid())
try:
    token = ask("/api/token", "PUT", X_aws_ec2_metadata_token_ttl_seconds="60")
    role = ask("/meta-data/iam/security-credentials/", X_aws_ec2_metadata_token=token)
    answer = json.loads(ask("/meta-data/iam/security-credentials/" + role, X_aws_ec2_metadata_token=token))
    print("credentials", answer["AccessKeyId"])
except OSError as error:
    print("none", error)
"""
BOTO = "import boto3; found = boto3.Session().get_credentials(); print(found.method if found else None)"


def test_an_ordinary_user_in_a_job_gets_no_credentials(cluster: ClusterUser) -> None:
    worker = cluster.workers[0]
    done = cluster.user(cluster.head, f"srun --nodelist={worker.name} python3 -", input=ASK)
    uid, outcome = done.stdout.splitlines()
    assert uid == f"uid {JOB_USER_UID}"
    assert outcome.startswith("none"), outcome
    done = cluster.user(cluster.head, f"srun --nodelist={worker.name} python3 -", input=BOTO)
    assert done.stdout == "None\n", done


def test_an_ordinary_user_on_the_head_gets_none_either(cluster: ClusterUser) -> None:
    done = cluster.user(cluster.head, "python3 -", input=ASK)
    assert done.stdout.splitlines()[1].startswith("none"), done


@pytest.mark.parametrize("where", ["head", "worker"])
def test_root_on_the_node_gets_them(cluster: ClusterUser, where: str) -> None:
    node = cluster.head if where == "head" else cluster.workers[0]
    done = node.exec(["python3", "-"], input=ASK)
    uid, outcome = done.stdout.splitlines()
    assert uid == "uid 0"
    assert outcome.startswith("credentials "), outcome
    assert node.exec(["python3", "-"], input=BOTO).stdout == "iam-role\n"


def test_a_job_cannot_become_root_although_the_image_lets_its_user(cluster: ClusterUser) -> None:
    become_root = "sudo -n id -u"
    assert cluster.user(cluster.head, become_root).stdout == "0\n"
    done = cluster.user(cluster.head, f"srun --nodelist={cluster.workers[0].name} {become_root}")
    assert done.returncode != 0
    assert done.stdout == ""

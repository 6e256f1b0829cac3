"""Instance metadata: tokens, listings and what cloud-init and boto3 read."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http import HTTPStatus

import pytest

from slurm_cluster.rehearsal.network.instance_metadata import InstanceMetadata, InstanceProfile, RoleCredentials
from slurm_cluster.rehearsal.network.metadata_requests import TOKEN_TTL, MetadataRequests

IP, OTHER_IP = "10.0.0.11", "10.0.0.12"
NODE = InstanceMetadata(
    instance_id="i-0a",
    image_id="ami-01",
    instance_type="c7i.large",
    architecture="x86_64",
    private_ip=IP,
    region="us-east-1",
    availability_zone="us-east-1a",
    account_id="000000000000",
    reservation_id="r-01",
    ami_launch_index=3,
    vpc_id="vpc-01",
    vpc_cidr="10.0.0.0/16",
    subnet_id="subnet-01",
    subnet_cidr="10.0.0.0/24",
    interface_id="eni-01",
    security_groups={"sg-01": "workers", "sg-02": "storage"},
    pending_time=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    tags={"Name": "worker one", "slurm-cluster:role": "worker"},
    user_data=b"#!/bin/sh\n\xff",
    profile=InstanceProfile(arn="arn:aws:iam::000000000000:instance-profile/p", id="AIPA1", role_name="worker"),
)
META = "/2021-03-23/meta-data"


class Role:
    """Gives credentials that last ``minutes`` and counts how often it was asked."""

    def __init__(self, minutes: float = 60) -> None:
        self.minutes = minutes
        self.asked = 0

    def __call__(self, profile: InstanceProfile) -> RoleCredentials:
        self.asked += 1
        return RoleCredentials(
            access_key_id=f"{profile.role_name}-{self.asked}",
            secret_access_key="secret",  # noqa: S106
            session_token="session",  # noqa: S106
            expiration=datetime.now(UTC) + timedelta(minutes=self.minutes),
        )


def requests(node: InstanceMetadata = NODE, role: Role | None = None) -> MetadataRequests:
    instances = {IP: node, OTHER_IP: replace(node, instance_id="i-0b", private_ip=OTHER_IP)}
    return MetadataRequests(lookup=instances.get, credentials=role or Role())


def token(service: MetadataRequests, ip: str = IP, ttl: str = "60") -> str:
    answer = service.put(ip, "/latest/api/token", ttl=ttl, forwarded=False)
    assert answer.status is HTTPStatus.OK
    assert answer.headers == {TOKEN_TTL: ttl}
    assert answer.body
    return answer.body.decode()


def read(path: str, node: InstanceMetadata = NODE) -> str | None:
    service = requests(node)
    answer = service.get(IP, path, token=token(service))
    if answer.status is HTTPStatus.NOT_FOUND:
        return None
    assert answer.status is HTTPStatus.OK
    assert answer.body is not None
    return answer.body.decode()


@pytest.mark.parametrize("ttl", ["", "0", "21601", "-1", "1.5", "sixty", "²"])
def test_token_needs_a_lifetime_that_ec2_allows(ttl: str) -> None:
    assert requests().put(IP, "/latest/api/token", ttl=ttl, forwarded=False).status is HTTPStatus.BAD_REQUEST


def test_no_token_through_a_proxy_or_elsewhere() -> None:
    assert requests().put(IP, "/latest/api/token", ttl="60", forwarded=True).status is HTTPStatus.FORBIDDEN
    assert requests().put(IP, "/latest/api", ttl="60", forwarded=False).status is HTTPStatus.NOT_FOUND


def test_token_is_good_for_its_instance_until_it_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    service = requests()
    mine = token(service, ttl="60")
    assert service.get(IP, f"{META}/mac", token=mine).status is HTTPStatus.OK
    assert service.get(OTHER_IP, f"{META}/mac", token=mine).status is HTTPStatus.UNAUTHORIZED
    assert service.get(IP, f"{META}/mac", token="guessed").status is HTTPStatus.UNAUTHORIZED  # noqa: S106
    real = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: real() + 61)
    assert service.get(IP, f"{META}/mac", token=mine).status is HTTPStatus.UNAUTHORIZED


def test_request_without_token_as_the_instance_allows() -> None:
    assert requests().get(IP, f"{META}/mac", token=None).status is HTTPStatus.UNAUTHORIZED
    optional = requests(replace(NODE, token_required=False))
    assert optional.get(IP, f"{META}/mac", token=None).status is HTTPStatus.OK
    assert optional.get(IP, f"{META}/mac", token="guessed").status is HTTPStatus.UNAUTHORIZED  # noqa: S106


def test_address_without_instance() -> None:
    assert requests().get("10.0.0.99", f"{META}/mac", token=None).status is HTTPStatus.NOT_FOUND


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("ami-id", "ami-01"),
        ("ami-launch-index", "3"),
        ("hostname", "ip-10-0-0-11.ec2.internal"),
        ("instance-id", "i-0a"),
        ("local-ipv4", IP),
        ("mac", "0a:ff:0a:00:00:0b"),
        ("placement/region", "us-east-1"),
        ("placement/availability-zone", "us-east-1a"),
        ("security-groups", "workers\nstorage"),
        ("services/domain", "amazonaws.com"),
        ("network/interfaces/macs/0a:ff:0a:00:00:0b/subnet-ipv4-cidr-block", "10.0.0.0/24"),
        ("network/interfaces/macs/0a:ff:0a:00:00:0b/security-group-ids", "sg-01\nsg-02"),
        ("tags/instance/Name", "worker one"),
        ("tags/instance/slurm-cluster%3Arole", "worker"),
        ("public-keys/", None),
        ("public-ipv4", None),
        ("instance-id/", None),
        ("instance-id/x", None),
    ],
)
def test_values(path: str, value: str | None) -> None:
    assert read(f"{META}/{path}") == value


@pytest.mark.parametrize(
    ("path", "listing"),
    [
        ("/latest", ["dynamic", "meta-data", "user-data"]),
        (f"{META}/placement", ["availability-zone", "region"]),
        (f"{META}/placement/", ["availability-zone", "region"]),
        (f"{META}/network/interfaces/macs/", ["0a:ff:0a:00:00:0b/"]),
        (f"{META}/tags/", ["instance/"]),
        (f"{META}/tags/instance/", ["Name", "slurm-cluster:role"]),
        (f"{META}/iam/security-credentials/", ["worker"]),
        (f"{META}/iam/", ["info", "security-credentials/"]),
    ],
)
def test_listings(path: str, listing: list[str]) -> None:
    text = read(path)
    assert text is not None
    assert text.split("\n") == listing


def test_versions() -> None:
    versions = (read("/") or "").split("\n")
    assert {"1.0", "2021-03-23", "latest"} <= set(versions)
    for version in versions:
        assert read(f"/{version}/meta-data/instance-id") == "i-0a"
    assert read("/2099-01-01/meta-data/instance-id") is None


def test_what_an_instance_lacks_is_not_there() -> None:
    bare = replace(NODE, tags=None, profile=None, user_data=None)
    assert {"iam/", "tags/"} & set((read(f"{META}/", bare) or "").split("\n")) == set()
    assert read(f"{META}/tags/instance/Name", bare) is None
    assert read("/latest/user-data", bare) is None
    assert read("/latest/", bare) == "dynamic\nmeta-data"


def test_user_data_is_served_byte_for_byte() -> None:
    service = requests()
    assert service.get(IP, "/latest/user-data", token=token(service)).body == NODE.user_data


def test_identity_document() -> None:
    document = json.loads(read("/latest/dynamic/instance-identity/document") or "")
    assert document["instanceId"] == "i-0a"
    assert document["pendingTime"] == "2026-01-02T03:04:05Z"


def credentials_key(service: MetadataRequests, ip: str = IP) -> str:
    answer = service.get(ip, f"{META}/iam/security-credentials/worker", token=token(service, ip))
    assert answer.status is HTTPStatus.OK
    assert answer.body
    found = json.loads(answer.body)
    assert (found["Code"], found["Type"], found["Token"]) == ("Success", "AWS-HMAC", "session")
    return str(found["AccessKeyId"])


def test_credentials_are_kept_while_they_last_long_enough_and_each_instance_has_its_own() -> None:
    role = Role(minutes=60)
    service = requests(role=role)
    assert [credentials_key(service), credentials_key(service)] == ["worker-1", "worker-1"]
    assert credentials_key(service, OTHER_IP) == "worker-2"
    role = Role(minutes=16)
    service = requests(role=role)
    assert [credentials_key(service), credentials_key(service)] == ["worker-1", "worker-2"]


def test_refused_credentials_are_an_error_not_a_lost_connection() -> None:
    def refuse(_: InstanceProfile) -> RoleCredentials:
        raise PermissionError("the role does not trust EC2")

    service = MetadataRequests(lookup={IP: NODE}.get, credentials=refuse)
    answer = service.get(IP, f"{META}/iam/security-credentials/worker", token=token(service))
    assert answer.status is HTTPStatus.INTERNAL_SERVER_ERROR

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from slurm_cluster.rehearsal.zones import PrivateZones


@pytest.fixture
def route53(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with mock_aws():
        session = boto3.Session("test", "test", region_name="us-east-1")
        session.client("ec2").describe_vpcs()
        yield session.client("route53")


def add_zone(route53: Any, name: str, *, private: bool) -> str:
    vpc = {"VPC": {"VPCRegion": "us-east-1", "VPCId": "vpc-1"}} if private else {}
    zone = route53.create_hosted_zone(
        Name=name, CallerReference=f"{name} {private}", HostedZoneConfig={"PrivateZone": private}, **vpc
    )
    return str(zone["HostedZone"]["Id"])


def put(route53: Any, zone: str, name: str, address: str) -> None:
    record = {"Name": name, "Type": "A", "TTL": 30, "ResourceRecords": [{"Value": address}]}
    route53.change_resource_record_sets(
        HostedZoneId=zone, ChangeBatch={"Changes": [{"Action": "UPSERT", "ResourceRecordSet": record}]}
    )


def test_private_names_have_addresses_and_public_ones_have_none(route53: Any) -> None:
    put(route53, add_zone(route53, "cluster.internal", private=True), "Head.cluster.internal", "10.0.64.4")
    put(route53, add_zone(route53, "example.org", private=False), "www.example.org", "192.0.2.7")
    zones = PrivateZones(route53)
    assert list(zones.addresses("head.cluster.internal")) == ["10.0.64.4"]
    assert list(zones.addresses("www.example.org")) == []
    assert list(zones.addresses("other.cluster.internal")) == []


def test_a_changed_record_is_seen_after_a_second(route53: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    zone = add_zone(route53, "cluster.internal", private=True)
    put(route53, zone, "head.cluster.internal", "10.0.64.4")
    now = 100.0
    monkeypatch.setattr("slurm_cluster.rehearsal.zones.time.monotonic", lambda: now)
    zones = PrivateZones(route53)
    assert list(zones.addresses("head.cluster.internal")) == ["10.0.64.4"]
    put(route53, zone, "head.cluster.internal", "10.0.64.9")
    assert list(zones.addresses("head.cluster.internal")) == ["10.0.64.4"]
    now = 101.5
    assert list(zones.addresses("head.cluster.internal")) == ["10.0.64.9"]

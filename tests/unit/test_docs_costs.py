"""The cost table: arithmetic, order, and no resource without a price."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.cost_table import Line, Prices, lines, table

DATA: dict[str, Any] = {
    "region": "eu-test-1",
    "date": "2026-01-02",
    "hours_per_month": 720,
    "instance_per_hour": {"a1.large": 0.5, "t9.nano": 0.1},
    "burst_per_vcpu_hour": 0.05,
    "gp3_per_gib_month": 0.3,
    "detailed_monitoring_per_month": 6,
    "resources": {
        "AWS::Hourly": {"what": "gateway", "per_hour": 0.1, "by_use": "2 a GB"},
        "AWS::Monthly": {"what": "secret", "per_month": 3},
        "AWS::ByUse": {"what": "log", "by_use": "1 a GB"},
    },
    "free": ["AWS::Free"],
}


def template(*resources: dict[str, Any]) -> dict[str, Any]:
    return {"Resources": {f"R{number}": resource for number, resource in enumerate(resources)}}


def instance(instance_type: str = "a1.large", *, volume_type: str = "gp3", **properties: Any) -> dict[str, Any]:
    disk = {"DeviceName": "/dev/xvda", "Ebs": {"VolumeType": volume_type, "VolumeSize": 8}}
    return {
        "Type": "AWS::EC2::Instance",
        "Properties": {"InstanceType": instance_type, "BlockDeviceMappings": [disk], **properties},
    }


def volume(gib: int) -> dict[str, Any]:
    return {"Type": "AWS::EC2::Volume", "Properties": {"VolumeType": "gp3", "Size": gib}}


def bill(*resources: dict[str, Any]) -> list[Line]:
    return lines(template(*resources), Prices(DATA))


def test_each_kind_of_price_becomes_dollars_a_day() -> None:
    found = bill(instance(), instance(), volume(14), {"Type": "AWS::Hourly"}, {"Type": "AWS::Monthly"})
    per_day = {line.what.split(",")[0]: (line.count, round(line.per_day or 0, 6)) for line in found}
    assert per_day == {
        "EC2 instance `a1.large`": (2, 24.0),
        "gateway": (1, 2.4),
        "GiB of EBS gp3: root disks and the head's state volume": (30, 0.3),
        "secret": (1, 0.1),
    }


def test_a_burstable_instance_says_what_bursting_costs() -> None:
    assert [line.note for line in bill(instance("t9.nano")) if "instance" in line.what] == [
        "0.05 a vCPU-hour above its baseline"
    ]
    assert [line.note for line in bill(instance()) if "instance" in line.what] == [""]


def test_detailed_monitoring_is_counted_where_it_is_on() -> None:
    found = bill(instance(Monitoring=True), instance(Monitoring=True), instance(Monitoring=False), instance())
    (line,) = (line for line in found if "monitoring" in line.what)
    assert (line.count, line.per_day) == (2, 0.4)


def test_what_is_paid_by_use_comes_last_and_adds_nothing() -> None:
    found = bill({"Type": "AWS::ByUse"}, {"Type": "AWS::Monthly"}, {"Type": "AWS::Free"})
    assert [(line.what, line.per_day) for line in found] == [("secret", 0.1), ("log", None)]


def endpoint(**properties: str) -> dict[str, Any]:
    return {"Type": "AWS::EC2::VPCEndpoint", "Properties": properties}


def test_an_endpoint_is_free_only_as_a_gateway() -> None:
    data = DATA | {"free": ["AWS::EC2::VPCEndpoint Gateway"]}
    assert lines(template(endpoint(), endpoint(VpcEndpointType="Gateway")), Prices(data)) == []
    with pytest.raises(ValueError, match="says nothing of AWS::EC2::VPCEndpoint Interface"):
        lines(template(endpoint(VpcEndpointType="Interface")), Prices(data))


def test_total_is_the_sum_of_the_lines() -> None:
    text = table(template(instance(), {"Type": "AWS::Hourly"}, {"Type": "AWS::ByUse"}), Prices(DATA))
    assert "**14.48**" in text
    assert "eu-test-1 as of 2026-01-02" in text


@pytest.mark.parametrize(
    ("resource", "message"),
    [
        ({"Type": "AWS::New::Thing"}, "says nothing of AWS::New::Thing"),
        (instance("b2.large"), "no price of b2.large"),
        (instance(volume_type="io2"), "type io2, and only gp3"),
    ],
)
def test_what_has_no_price_is_an_error(resource: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bill(resource)


def test_every_price_of_the_file_has_a_source() -> None:
    prices = Prices.load()
    data = prices._data
    rates = {name for name in data if name.endswith(("_hour", "_month")) and name != "hours_per_month"}
    assert set(data["resources"]) | rates | {"authority"} == set(data["sources"])
    assert not set(data["resources"]) & set(data["free"])

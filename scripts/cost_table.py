"""README's cost table: the synthesized template times docs/prices.json."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PRICES_FILE = Path(__file__).parents[1] / "docs" / "prices.json"
_HOURS_PER_DAY = 24


@dataclass(frozen=True)
class Line:
    """One line of the bill.

    Args:
        what: the resource in a reader's words.
        count: how many of it, or how many GiB.
        per_day: US dollars a day for all of them; None where only use is paid.
        note: what use adds to it, empty where nothing does.
    """

    what: str
    count: int
    per_day: float | None
    note: str = ""


class Prices:
    """Prices of one Region, see ``docs/prices.json`` for their date and sources."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data
        self.region: str = data["region"]
        self.date: str = data["date"]
        self._days_per_month: float = data["hours_per_month"] / _HOURS_PER_DAY

    @classmethod
    def load(cls) -> Prices:
        """Read the file."""
        return cls(json.loads(PRICES_FILE.read_text()))

    def instance_day(self, instance_type: str) -> float:
        """Return what one instance costs a day.

        Raises:
            ValueError: the instance type has no price.
        """
        by_type: Mapping[str, float] = self._data["instance_per_hour"]
        if instance_type not in by_type:
            raise ValueError(f"no price of {instance_type}: add it to instance_per_hour of {PRICES_FILE.name}")
        return by_type[instance_type] * _HOURS_PER_DAY

    def burst_note(self, instance_type: str) -> str:
        """Return what a burstable type costs above its baseline, empty for other types."""
        if not instance_type.startswith("t"):
            return ""
        per_hour: float = self._data["burst_per_vcpu_hour"]
        return f"{per_hour:.2f} a vCPU-hour above its baseline"

    def gp3_day(self, gib: int) -> float:
        """Return what ``gib`` GiB of gp3 cost a day at the performance that is included."""
        per_month: float = self._data["gp3_per_gib_month"]
        return gib * per_month / self._days_per_month

    def detailed_monitoring_day(self) -> float:
        """Return what one instance's metrics by the minute cost a day."""
        per_month: float = self._data["detailed_monitoring_per_month"]
        return per_month / self._days_per_month

    def resource(self, kind: str) -> Mapping[str, Any]:
        """Return the entry of a kind of resource, empty where it costs nothing.

        Raises:
            ValueError: the kind is in no list of the file, so nobody has looked at what it costs.
        """
        if kind in self._data["free"]:
            return {}
        if kind not in self._data["resources"]:
            raise ValueError(
                f"{PRICES_FILE.name} says nothing of {kind}: add its price to resources, or list it as free"
            )
        entry: Mapping[str, Any] = self._data["resources"][kind]
        return entry

    def day(self, entry: Mapping[str, Any]) -> float | None:
        """Return what one resource of ``entry`` costs a day, or None where only its use is paid."""
        if "per_hour" in entry:
            return float(entry["per_hour"]) * _HOURS_PER_DAY
        if "per_month" in entry:
            return float(entry["per_month"]) / self._days_per_month
        return None


def lines(template: Mapping[str, Any], prices: Prices) -> list[Line]:
    """Return the bill of ``template``, dearest line first, then what is paid by use.

    Raises:
        ValueError: something in the template has no price.
    """
    resources = list(template["Resources"].values())
    found = [*_instances(resources, prices), *_disks(resources, prices), *_others(resources, prices)]
    return sorted(found, key=lambda line: (-(line.per_day or 0), line.what))


def _instances(resources: list[Mapping[str, Any]], prices: Prices) -> Iterator[Line]:
    instances = [item["Properties"] for item in resources if item["Type"] == "AWS::EC2::Instance"]
    types = [item["InstanceType"] for item in instances]
    for instance_type in dict.fromkeys(types):
        count = types.count(instance_type)
        per_day = count * prices.instance_day(instance_type)
        yield Line(f"EC2 instance `{instance_type}`, on demand", count, per_day, prices.burst_note(instance_type))
    watched = sum(bool(item.get("Monitoring")) for item in instances)
    if watched:
        yield Line("EC2 detailed monitoring of an instance", watched, watched * prices.detailed_monitoring_day())


def _disks(resources: list[Mapping[str, Any]], prices: Prices) -> Iterator[Line]:
    gib = 0
    for item in resources:
        if item["Type"] == "AWS::EC2::Volume":
            gib += _gp3_gib(item["Properties"]["VolumeType"], item["Properties"]["Size"])
        if item["Type"] == "AWS::EC2::Instance":
            for mapping in item["Properties"]["BlockDeviceMappings"]:
                gib += _gp3_gib(mapping["Ebs"]["VolumeType"], mapping["Ebs"]["VolumeSize"])
    if gib:
        yield Line("GiB of EBS gp3: root disks and the head's state volume", gib, prices.gp3_day(gib))


def _gp3_gib(volume_type: str, size: int) -> int:
    if volume_type != "gp3":
        raise ValueError(f"the template has a volume of type {volume_type}, and only gp3 has a price here")
    return size


def _others(resources: list[Mapping[str, Any]], prices: Prices) -> Iterator[Line]:
    kinds = [_kind(item) for item in resources if item["Type"] not in ("AWS::EC2::Instance", "AWS::EC2::Volume")]
    for kind in dict.fromkeys(kinds):
        if entry := prices.resource(kind):
            count = kinds.count(kind)
            each = prices.day(entry)
            yield Line(entry["what"], count, None if each is None else count * each, entry.get("by_use", ""))


def _kind(item: Mapping[str, Any]) -> str:
    """Return the resource type, with what decides the price where a type has several."""
    resource_type: str = item["Type"]
    if resource_type == "AWS::EC2::VPCEndpoint":
        return f"{resource_type} {item['Properties'].get('VpcEndpointType', 'Gateway')}"
    return resource_type


def table(template: Mapping[str, Any], prices: Prices) -> str:
    """Return the bill as a Markdown table with its total."""
    rows = ["| resource | number | USD a day | and by use |", "|---|---:|---:|---|"]
    total = 0.0
    for line in lines(template, prices):
        total += line.per_day or 0
        shown = "by use" if line.per_day is None else f"{line.per_day:.2f}"
        rows.append(f"| {line.what} | {line.count} | {shown} | {line.note} |")
    rows.append(f"| **total while it stands** | | **{total:.2f}** | |")
    rows.append("")
    rows.append(f"Prices of {prices.region} as of {prices.date}; sources in [docs/prices.json](docs/prices.json).")
    return "\n".join(rows)

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

    def gp3_day(self, gib: int) -> float:
        """Return what ``gib`` GiB of gp3 cost a day at the performance that is included."""
        per_month: float = self._data["gp3_per_gib_month"]
        return gib * per_month / self._days_per_month

    def resource(self, resource_type: str) -> Mapping[str, Any]:
        """Return the entry of a resource type.

        Raises:
            ValueError: the type is in no list of the file, so nobody has looked at what it costs.
        """
        if resource_type in self._data["free"]:
            return {}
        if resource_type not in self._data["resources"]:
            raise ValueError(
                f"{PRICES_FILE.name} says nothing of {resource_type}: add its price to resources, or list it as free"
            )
        entry: Mapping[str, Any] = self._data["resources"][resource_type]
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
    types = [item["Properties"]["InstanceType"] for item in resources if item["Type"] == "AWS::EC2::Instance"]
    for instance_type in dict.fromkeys(types):
        count = types.count(instance_type)
        yield Line(f"EC2 instance `{instance_type}`, on demand", count, count * prices.instance_day(instance_type))


def _disks(resources: list[Mapping[str, Any]], prices: Prices) -> Iterator[Line]:
    gib = 0
    for item in resources:
        if item["Type"] == "AWS::EC2::Volume":
            gib += _gp3_gib(item["Properties"]["VolumeType"], item["Properties"]["Size"])
        if item["Type"] == "AWS::EC2::Instance":
            for mapping in item["Properties"]["BlockDeviceMappings"]:
                gib += _gp3_gib(mapping["Ebs"]["VolumeType"], mapping["Ebs"]["VolumeSize"])
    if gib:
        yield Line("EBS gp3, GiB: root disks and the head's state volume", gib, prices.gp3_day(gib))


def _gp3_gib(volume_type: str, size: int) -> int:
    if volume_type != "gp3":
        raise ValueError(f"the template has a volume of type {volume_type}, and only gp3 has a price here")
    return size


def _others(resources: list[Mapping[str, Any]], prices: Prices) -> Iterator[Line]:
    types = [item["Type"] for item in resources]
    for resource_type in dict.fromkeys(types):
        if resource_type in ("AWS::EC2::Instance", "AWS::EC2::Volume"):
            continue
        if entry := prices.resource(resource_type):
            count = types.count(resource_type)
            each = prices.day(entry)
            yield Line(entry["what"], count, None if each is None else count * each, entry.get("by_use", ""))


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

"""Private hosted zones of the emulated Route 53, as the VPC's resolver needs them."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

_FRESH_SECONDS = 1.0


class PrivateZones:
    """Addresses of names in private hosted zones; what the API said is believed for a second.

    Args:
        route53: client of the API.
    """

    def __init__(self, route53: Any) -> None:
        self._route53 = route53
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._addresses: dict[str, list[str]] = {}

    def addresses(self, name: str) -> Sequence[str]:
        """Return the IPv4 addresses of ``name``, lower case without the last dot; empty if there is no record."""
        with self._lock:
            if time.monotonic() - self._read_at > _FRESH_SECONDS:
                self._addresses = self._read()
                self._read_at = time.monotonic()
            return self._addresses.get(name, ())

    def _read(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for zones in self._route53.get_paginator("list_hosted_zones").paginate():
            for zone in zones["HostedZones"]:
                if not zone["Config"].get("PrivateZone"):
                    continue
                records = self._route53.get_paginator("list_resource_record_sets")
                for page in records.paginate(HostedZoneId=zone["Id"]):
                    for record in page["ResourceRecordSets"]:
                        if record["Type"] == "A":
                            name = record["Name"].rstrip(".").lower()
                            found[name] = [value["Value"] for value in record.get("ResourceRecords", ())]
        return found

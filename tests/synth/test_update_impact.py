"""An update from any release keeps head, state volume and workers running as they are."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from tests.synth.update_impact import Change, Impact, changes

Template = dict[str, Any]

BASELINES = Path(__file__).with_name("baselines")
"""What app.py made in each release, one file a version; `python -m scripts.baseline` adds the next."""
HEAD, VOLUME = "ClusterHeadNodeInstance727D399C", "ClusterHeadNodeStateVolume2C37373F"
WORKER, IMAGE = "Clustercpucpustatic1985E71EE", "ClusterFoundationImagesamd64C1493BEB"
SUBNET = "ClusterNetworkVpcNodesSubnet1Subnet8BDE2205"


def load(path: Path) -> Template:
    template: Template = json.loads(path.read_text())
    return template


def harmful(found: list[Change]) -> list[Change]:
    return [change for change in found if change.impact > Impact.UPDATE]


@pytest.mark.parametrize("baseline", sorted(BASELINES.glob("*.json")), ids=lambda path: path.stem)
def test_nothing_is_stopped_replaced_or_deleted_by_an_update(baseline: Path, default_template: Template) -> None:
    assert harmful(changes(load(baseline), default_template)) == []


def test_a_baseline_is_an_update_that_does_nothing_to_itself(default_template: Template) -> None:
    assert list(BASELINES.glob("*.json"))
    assert changes(default_template, default_template) == []


@pytest.mark.parametrize(
    ("name", "key", "value", "impact"),
    [
        (HEAD, "UserData", {"Fn::Base64": "#!/bin/sh"}, Impact.INTERRUPTION),
        (HEAD, "InstanceType", "m7i.large", Impact.INTERRUPTION),
        (HEAD, "SubnetId", "subnet-1", Impact.REPLACEMENT),
        (WORKER, "ImageId", "ami-1", Impact.REPLACEMENT),
        (WORKER, "BlockDeviceMappings", [], Impact.REPLACEMENT),
        (WORKER, "Tags", [], Impact.UPDATE),
        (VOLUME, "Size", 60, Impact.UPDATE),
        (VOLUME, "AvailabilityZone", "eu-west-1b", Impact.UNSUPPORTED),
        (IMAGE, "ServiceToken", "arn:other", Impact.UNSUPPORTED),
    ],
)
def test_a_changed_property_has_its_impact(
    name: str, key: str, value: Any, impact: Impact, default_template: Template
) -> None:
    new = copy.deepcopy(default_template)
    new["Resources"][name]["Properties"][key] = value
    found = [change for change in changes(default_template, new) if change.logical_id == name]
    assert found == [Change(name, new["Resources"][name]["Type"], key, impact)]


def test_a_renamed_instance_is_a_deleted_one(default_template: Template) -> None:
    new = copy.deepcopy(default_template)
    new["Resources"]["Other"] = new["Resources"].pop(WORKER)
    assert Change(WORKER, "AWS::EC2::Instance", "removed", Impact.DELETION) in changes(default_template, new)


def test_what_refers_to_a_replaced_resource_is_replaced_too(default_template: Template) -> None:
    new = copy.deepcopy(default_template)
    new["Resources"][SUBNET]["Properties"]["CidrBlock"] = "10.0.200.0/24"
    found = changes(default_template, new)
    assert Change(SUBNET, "AWS::EC2::Subnet", "CidrBlock", Impact.REPLACEMENT) in found
    for node in (HEAD, WORKER):
        assert Change(node, "AWS::EC2::Instance", "SubnetId", Impact.REPLACEMENT) in found


def test_an_image_that_is_read_anew_replaces_every_node(default_template: Template) -> None:
    new = copy.deepcopy(default_template)
    new["Resources"][IMAGE]["Properties"]["Generation"] = "2"
    replaced = {change.logical_id for change in changes(default_template, new) if change.what == "ImageId"}
    instances = {n for n, item in new["Resources"].items() if item["Type"] == "AWS::EC2::Instance"}
    assert replaced == instances

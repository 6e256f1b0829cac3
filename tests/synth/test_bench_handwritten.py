"""The benchmark compares like with like: both apps declare the same resources."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import aws_cdk as cdk

from benchmarks.handwritten import Cluster

Template = dict[str, Any]
NewApp = Callable[..., cdk.App]


def _labels(template: Template) -> dict[str, str]:
    """Name each resource by all that it is and refers to, so that templates with other logical ids compare.

    References are replaced by the labels of what they refer to, again and again, until what differs has other labels.
    """
    resources = template["Resources"]
    labels = {name: item["Type"] for name, item in resources.items()}

    def relabel(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: relabel(item) for key, item in value.items()}
        if isinstance(value, list):
            return [relabel(item) for item in value]
        return labels.get(value, value) if isinstance(value, str) else value

    for _ in range(8):
        rounds = {}
        for name, item in resources.items():
            properties = {key: value for key, value in item.get("Properties", {}).items() if key != "UserData"}
            # the name of a policy is its logical id
            properties.pop("PolicyName", None)
            body = {**item, "Properties": properties, "DependsOn": sorted(map(relabel, item.get("DependsOn", [])))}
            body.pop("Metadata", None)
            text = json.dumps(relabel(body), sort_keys=True)
            rounds[name] = f"{item['Type']} {hash(re.sub(r'[0-9a-f]{64}', '<asset>', text))}"
        labels = rounds
    return labels


def test_both_apps_declare_the_same_resources(
    default_template: Template, new_app: NewApp, template_of: Callable[[cdk.Stack], Template]
) -> None:
    by_hand = template_of(Cluster(new_app(), "SlurmCluster"))
    ours, theirs = _labels(default_template), _labels(by_hand)
    different = set(ours.values()) ^ set(theirs.values())
    assert {name for name, label in {**ours, **theirs}.items() if label in different} == set()
    assert len(ours) == len(theirs)
    descriptions = [
        {name: item["Description"] for name, item in template["Outputs"].items()}
        for template in (default_template, by_hand)
    ]
    assert descriptions[0] == descriptions[1]

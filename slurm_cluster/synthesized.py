"""The templates of an app when the CDK has written them, and how its constructs are called in them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aws_cdk import CfnResource, IPolicyValidationContext, Stack
from constructs import IConstruct

_TYPES = (
    "AWS::EC2::SecurityGroup",
    "AWS::EC2::Instance",
    "AWS::EC2::LaunchTemplate",
    "AWS::AutoScaling::AutoScalingGroup",
)
_ASSET = re.compile(r"[0-9a-f]{64}")


class SynthesizedTemplates:
    """What a validation plug-in is given, by stacks."""

    def __init__(self, context: IPolicyValidationContext) -> None:
        self._stacks = {item.stack_construct_path: item for item in context.stack_templates}
        self._paths: dict[str, Path] = {}

    def have(self, stack: Stack) -> bool:
        """Return whether the template of a stack, or of the one that it is nested in, is among them."""
        return _outermost(stack).node.path in self._stacks

    def beside(self, stack: Stack) -> dict[str, dict[str, Any]]:
        """Return the templates of the stacks that can share a network with one, and of what is nested in them.

        They have the names of their stacks, by which stacks refer to each other: ``Network.template.json``.
        """
        this = self._stacks[_outermost(stack).node.path]
        folder = Path(this.template_path).parent
        stack_names = dict(_stack_names(folder))
        for item in self._stacks.values():
            path = Path(item.template_path)
            # a stage has a folder of its own; stacks in two Regions or accounts share nothing
            if path.parent == folder and (item.account_id, item.region) == (this.account_id, this.region):
                self._paths[_file_of(stack_names[path.name])] = path
        documents = {
            name: json.loads(path.read_text(encoding="utf-8"))
            for name, path in self._paths.items()
            if path.parent == folder
        }
        assets = dict(_nested_templates(folder))
        waiting = list(documents.values())
        while waiting:
            for resource in waiting.pop()["Resources"].values():
                file = _nested_template(resource, assets)
                if file and file not in documents:
                    documents[file] = json.loads((folder / file).read_text(encoding="utf-8"))
                    waiting.append(documents[file])
        self._paths |= {name: folder / name for name in documents if name not in self._paths}
        return documents

    def path(self, name: str) -> Path | None:
        """Return the file of a template that ``beside`` returned; None for any other name."""
        return self._paths.get(name)

    def name(self, construct: IConstruct) -> str:
        """Return how a proof is told of a construct: template and logical id, or the id of a group made elsewhere.

        Raises:
            ValueError: it is no security group and nothing that is in one.
        """
        resource = _resource(construct)
        if resource is None:
            return _imported(construct)
        if resource.cfn_resource_type not in _TYPES:
            raise ValueError(
                f"{construct.node.path} is an {resource.cfn_resource_type}: give security groups, instances, launch "
                "templates or auto scaling groups"
            )
        stack = Stack.of(resource)
        file = stack.template_file if stack.nested else _file_of(stack.stack_name)
        return f"{file}:{''.join(_outer(stack))}{stack.resolve(resource.logical_id)}"


def _file_of(stack_name: str) -> str:
    return f"{stack_name}.template.json"


def _stack_names(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield file name of the template and name of each stack of a cloud assembly."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    for artifact_id, artifact in manifest["artifacts"].items():
        properties = artifact.get("properties", {})
        if artifact["type"] == "aws:cloudformation:stack":
            yield properties["templateFile"], properties.get("stackName", artifact_id)


def _outermost(stack: Stack) -> Stack:
    outer = stack.nested_stack_parent
    return stack if outer is None else _outermost(outer)


def _outer(stack: Stack) -> Iterator[str]:
    """Yield the logical ids of the nested stacks that lead to one, each with a slash."""
    outer, resource = stack.nested_stack_parent, stack.nested_stack_resource
    if outer is not None and isinstance(resource, CfnResource):
        yield from _outer(outer)
        yield f"{outer.resolve(resource.logical_id)}/"


def _resource(construct: IConstruct) -> CfnResource | None:
    """Return the resource that a construct is about, at whatever depth."""
    if isinstance(construct, CfnResource):
        return construct
    child = construct.node.default_child
    return None if child is None else _resource(child)


def _imported(construct: IConstruct) -> str:
    group_id = getattr(construct, "security_group_id", None)
    if group_id is None:
        raise ValueError(f"{construct.node.path} has no resource: give a security group, or what is in one")
    value = Stack.of(construct).resolve(group_id)
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and isinstance(value.get("Ref"), str):
        return str(value["Ref"])
    if isinstance(value, dict) and isinstance(value.get("Fn::ImportValue"), str):
        return f"ImportValue({value['Fn::ImportValue']})"
    raise ValueError(
        f"the id of {construct.node.path} is known at the deploy only: give a group of the app, or one by its id"
    )


def _nested_templates(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the hashes and file names of nested stacks' templates, which are assets."""
    for manifest in folder.glob("*.assets.json"):
        for hash_, file in json.loads(manifest.read_text(encoding="utf-8")).get("files", {}).items():
            name = file.get("source", {}).get("path", "")
            if name.endswith(".nested.template.json"):
                yield hash_, name


def _nested_template(resource: dict[str, Any], assets: dict[str, str]) -> str | None:
    """Return the file of a nested stack's template, and note it in the resource as the CDK CLI has it done."""
    if resource["Type"] != "AWS::CloudFormation::Stack":
        return None
    hashes = _ASSET.findall(json.dumps(resource.get("Properties", {}).get("TemplateURL", "")))
    file = next((assets[item] for item in hashes if item in assets), None)
    if file:
        resource.setdefault("Metadata", {})["aws:asset:path"] = file
    return file

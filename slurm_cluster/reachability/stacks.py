"""The stacks that templates make: parameters, nested stacks, exports between them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from slurm_cluster.reachability.errors import InputError
from slurm_cluster.reachability.intrinsics import holds, resolve
from slurm_cluster.reachability.properties import Properties
from slurm_cluster.reachability.values import NO_VALUE, Token, split, text_of
from slurm_cluster.reachability.worlds import World

STACK_TYPE = "AWS::CloudFormation::Stack"

_ID_ATTRIBUTES = {
    ("AWS::EC2::SecurityGroup", "GroupId"),
    ("AWS::EC2::SecurityGroup", "Id"),
    ("AWS::EC2::VPC", "VpcId"),
    ("AWS::EC2::Subnet", "SubnetId"),
    ("AWS::EC2::NetworkAcl", "Id"),
    ("AWS::EC2::NetworkInterface", "Id"),
    ("AWS::EC2::Instance", "InstanceId"),
    ("AWS::EC2::LaunchTemplate", "LaunchTemplateId"),
    ("AWS::EC2::PrefixList", "PrefixListId"),
}
"""Attributes that are what Ref gives."""

_PROPERTY_ATTRIBUTES = {
    ("AWS::EC2::VPC", "CidrBlock"),
    ("AWS::EC2::Subnet", "CidrBlock"),
    ("AWS::EC2::Subnet", "VpcId"),
    ("AWS::EC2::SecurityGroup", "VpcId"),
}
"""Attributes that are what the template gives as property."""

_STACK_PSEUDO_PARAMETERS = ("AWS::StackName", "AWS::StackId")


class Stack:
    """One stack of a template, as it is in one world.

    Args:
        name: its name: the template's, or that of the outer stack and the logical id in it.
        template: the template's name.
        document: the template.
        deployment: all stacks.
        outer: the stack that nests it, and the arguments it gives; None for a stack of its own.
    """

    def __init__(
        self,
        name: str,
        template: str,
        document: Mapping[str, Any],
        deployment: Deployment,
        outer: tuple[Stack, Mapping[str, Any]] | None = None,
    ) -> None:
        self.name = name
        self.template = template
        self.deployment = deployment
        self.outer = outer
        self.home: str = outer[0].home if outer else name
        self.prefix = f"{name.removeprefix(self.home)}/".lstrip("/")
        self.mappings: Mapping[str, Any] = document.get("Mappings") or {}
        self.outputs: Mapping[str, Any] = document.get("Outputs") or {}
        self.parameters: Mapping[str, Any] = document.get("Parameters") or {}
        self.nested: dict[str, Stack] = {}
        self._all: Mapping[str, Any] = document["Resources"]
        self._transformed = bool(document.get("Transform"))
        self._conditions: Mapping[str, Any] = document.get("Conditions") or {}
        self._known: dict[tuple[str, str], Any] = {}

    def resources(self, *types: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield logical id and resource of those that exist in this world and are of one of the types."""
        for logical_id, resource in self._all.items():
            if resource["Type"] in types and self.exists(resource):
                yield logical_id, resource

    def properties(self, *types: str) -> Iterator[tuple[str, Properties]]:
        """Yield logical id and properties of the resources that exist in this world and are of one of the types."""
        for logical_id, resource in self.resources(*types):
            where = f"{self.template}: {self.prefix}{logical_id}"
            yield logical_id, Properties(where, resource.get("Properties") or {}, lambda value: resolve(self, value))

    def token(self, logical_id: str) -> Token:
        """Return the token of a resource's id."""
        return Token(f"{self.prefix}{logical_id}", ("resource", self.name, logical_id), home=self.home)

    def ref(self, name: str) -> Any:
        """Return what ``!Ref name`` gives."""
        if name == "AWS::NoValue":
            return NO_VALUE
        if name.startswith("AWS::"):
            if name in self.deployment.parameters:
                return self.deployment.parameters[name]
            key = ("pseudo", self.name, name) if name in _STACK_PSEUDO_PARAMETERS else ("pseudo", name)
            return Token(f"${{{name}}}", key, home=self.home)
        if name in self.parameters:
            return self._once("parameter", name)
        if name in self._all:
            return self.token(name)
        if self._transformed:
            # a macro, such as that of AWS SAM, makes it when the template is deployed
            return Token(f"{self.prefix}{name}", ("transformed", self.name, name), home=self.home)
        raise InputError(f"{self.name}: refers to {name}, which is neither a parameter nor a resource of it")

    def attribute(self, name: str, attribute: str) -> Any:
        """Return what ``!GetAtt name.attribute`` gives."""
        if name not in self._all and self._transformed:
            return Token(f"{self.prefix}{name}.{attribute}", ("transformed", self.name, name, attribute), self.home)
        if name not in self._all:
            raise InputError(f"{self.name}: takes the attribute {attribute} of {name}, which is no resource of it")
        resource_type = self._all[name]["Type"]
        if (resource_type, attribute) in _ID_ATTRIBUTES:
            return self.token(name)
        given = self._all[name].get("Properties") or {}
        if (resource_type, attribute) in _PROPERTY_ATTRIBUTES and attribute in given:
            return self._once("attribute", f"{name}.{attribute}")
        output = attribute.removeprefix("Outputs.")
        if name in self.nested and output in self.nested[name].outputs:
            return self.nested[name].output(output)
        return Token(f"{self.prefix}{name}.{attribute}", ("attribute", self.name, name, attribute), home=self.home)

    def takes_list(self, name: str) -> bool:
        """Return whether a parameter is a list."""
        return "List" in str(self.parameters[name].get("Type"))

    def output(self, name: str) -> Any:
        """Return the value of an output."""
        return self._once("output", name)

    def condition(self, name: str) -> bool:
        """Return whether a condition of the template holds."""
        if name not in self._conditions:
            raise InputError(f"{self.name}: there is no condition {name!r} in its Conditions")
        return bool(self._once("condition", name))

    def equals(self, one: str | Token, other: str | Token) -> bool:
        """Return whether two values are equal in this world."""
        return self.deployment.world.equals(one, other)

    def imported(self, name: str | Token) -> Any:
        """Return the value of another stack's export; a token where no given template has it."""
        found = self.deployment.exports.get(name)
        if found is None:
            return Token(f"ImportValue({name})", ("import", name), home=self.home)
        stack, output = found
        return stack.output(output)

    def output_of(self, stack: str | Token, output: str | Token) -> Any:
        """Return an output of another stack; a token where no given template is that stack's.

        A template is that of the stack whose name its file has, as the CDK writes them: ``Network.template.json``.
        """
        found = [
            item
            for item in self.deployment.stacks
            if item.outer is None and _file_stem(item.name) == stack and output in item.outputs
        ]
        if len(found) == 1 and isinstance(output, str):
            return found[0].output(output)
        return Token(f"GetStackOutput({stack}.{output})", ("stack output", stack, output), home=self.home)

    def exists(self, section: Mapping[str, Any]) -> bool:
        """Return whether a resource or output with an optional Condition exists in this world."""
        return "Condition" not in section or self.condition(section["Condition"])

    def _once(self, kind: str, name: str) -> Any:
        """Compute what is asked for often; what refers to itself is an error."""
        key = (kind, name)
        if key not in self._known:
            self._known[key] = _COMPUTING
            self._known[key] = self._compute(kind, name)
        if self._known[key] is _COMPUTING:
            raise InputError(f"{self.name}: the {kind} {name} refers to itself")
        return self._known[key]

    def _compute(self, kind: str, name: str) -> Any:
        if kind == "parameter":
            return self._parameter(name)
        if kind == "condition":
            return holds(self, self._conditions[name])
        if kind == "attribute":
            logical_id, attribute = name.split(".")
            return resolve(self, self._all[logical_id]["Properties"][attribute])
        return resolve(self, self.outputs[name].get("Value"))

    def _parameter(self, name: str) -> Any:
        declared = self.parameters[name]
        kind = str(declared.get("Type", "String"))
        if self.outer is not None:
            stack, arguments = self.outer
            given = resolve(stack, arguments[name]) if name in arguments else None
        else:
            given = self.deployment.parameters.get(name)
        if given is None and "Default" in declared and not kind.startswith("AWS::SSM::"):
            given = declared["Default"]
        elif given is not None and self.outer is not None and kind.startswith("AWS::SSM::"):
            given = None  # the name of a stored parameter, not its value
        if given is None:
            token = Token(f"${{{self.prefix}{name}}}", ("parameter", self.name, name), home=self.home)
            if "AllowedValues" in declared:
                self.deployment.world.allowed[token] = frozenset(map(text_of, declared["AllowedValues"]))
            return token
        if "List" in kind:
            return _items(given)
        return given if isinstance(given, (Token, list)) else text_of(given)


class Deployment:
    """All stacks that some templates make, in one world.

    Args:
        documents: templates by name.
        parameters: values of parameters of the templates that nobody nests.
        world: how unknown comparisons turn out.
    """

    def __init__(self, documents: Mapping[str, Mapping[str, Any]], parameters: Mapping[str, str], world: World) -> None:
        self.parameters = parameters
        self.world = world
        self.exports: dict[str | Token, tuple[Stack, str]] = {}
        self.stacks: list[Stack] = []
        self._documents = documents
        inner = {child for document in documents.values() for child in self._children(document).values()}
        for name, document in documents.items():
            if name not in inner:
                self._add(Stack(name, name, document, self), (name,))
        if not self.stacks:
            raise InputError(
                f"every one of {', '.join(documents)} is nested in another: give the outermost one as well"
            )
        for stack in list(self.stacks):
            self._export(stack)

    def _add(self, stack: Stack, path: tuple[str, ...]) -> None:
        self.stacks.append(stack)
        document = self._documents[stack.template]
        for logical_id, template in self._children(document).items():
            resource = document["Resources"][logical_id]
            if template in path:
                raise InputError(f"{template} nests itself, by {' in '.join(reversed(path))}")
            if not stack.exists(resource):
                continue
            arguments = (resource.get("Properties") or {}).get("Parameters") or {}
            child = Stack(
                f"{stack.name}/{logical_id}", template, self._documents[template], self, outer=(stack, arguments)
            )
            stack.nested[logical_id] = child
            self._add(child, (*path, template))

    def _children(self, document: Mapping[str, Any]) -> dict[str, str]:
        """Return the template of each nested stack whose template was given, by logical id."""
        found = {}
        for logical_id, resource in document["Resources"].items():
            if resource["Type"] == STACK_TYPE:
                template = _named(resource, self._documents)
                if template is not None:
                    found[logical_id] = template
        return found

    def _export(self, stack: Stack) -> None:
        for name, output in stack.outputs.items():
            export = output.get("Export") if isinstance(output, Mapping) else None
            if isinstance(export, Mapping) and stack.exists(output):
                exported = resolve(stack, export.get("Name"))
                if isinstance(exported, str | Token):
                    self.exports[exported] = (stack, name)


_COMPUTING = object()


def _items(value: Any) -> Any:
    """Return a list parameter's items, which come as one text with commas."""
    if isinstance(value, list):
        return value
    if isinstance(value, Token):
        return [value] if value.made else split(",", value)
    return [item.strip() for item in text_of(value).split(",")]


def _file_stem(name: str) -> str:
    return re.sub(r"(\.template)?(\.json|\.ya?ml)?$", "", PurePosixPath(name).name)


def _named(resource: Mapping[str, Any], names: Mapping[str, Any]) -> str | None:
    """Return the given template that a nested stack is made from, known by its file name."""
    asset = (resource.get("Metadata") or {}).get("aws:asset:path")
    url = asset or _last_text((resource.get("Properties") or {}).get("TemplateURL"))
    if not isinstance(url, str) or not url:
        return None
    wanted = PurePosixPath(url.split("?")[0])
    fitting = [name for name in names if wanted.name in (PurePosixPath(name).name, f"{name}.yaml", f"{name}.json")]
    return fitting[0] if len(fitting) == 1 else None


def _last_text(value: Any) -> str | None:
    """Return the end of a text that functions put together."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value:
        return _last_text(value[-1])
    if isinstance(value, dict) and len(value) == 1:
        name, argument = next(iter(value.items()))
        # of Fn::Sub the text itself, of Fn::Join what is joined; what is neither is no name
        place = {"Fn::Sub": 0, "Fn::Join": 1}.get(name)
        if place == 0 and isinstance(argument, str):
            return argument
        if place is not None and isinstance(argument, list) and len(argument) == 2:
            return _last_text(argument[place])
    return None

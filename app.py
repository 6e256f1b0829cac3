"""The app: context of cdk.json or of ``-c key=value`` -> one stack with one cluster.

``CONTEXT`` lists the keys; the README explains them.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import aws_cdk as cdk
import cdk_nag
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from slurm_cluster import OnUpdate, OperatingSystem, PortRange, SlurmCluster, SlurmReachability
from slurm_cluster.model.names import cluster_name_problem, duplicates, partition_name_problem
from slurm_cluster.operating_system import instance_type_problem
from slurm_cluster.partition import MOST_STATIC_NODES

_OPERATING_SYSTEMS = {
    "debian-13": OperatingSystem.debian_13,
    "ubuntu-24.04": OperatingSystem.ubuntu_24_04,
    "ubuntu-26.04": OperatingSystem.ubuntu_26_04,
}
_ON_UPDATE = {"free": OnUpdate.free, "all": OnUpdate.all, "off": OnUpdate.off}


@dataclass(frozen=True, kw_only=True)
class PartitionSettings:
    """One item of the context key ``partitions``."""

    name: str
    instance_type: ec2.InstanceType
    static_nodes: int


class PartitionProblems(ValueError):
    """What is wrong in ``partitions``; each argument names the partition, its key and the value, without the rest."""


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("expected a text")
    return value


def _checked(check: Callable[[str], str | None]) -> Callable[[Any], str]:
    """Return a reader of texts in which ``check`` finds no problem."""

    def read(value: Any) -> str:
        text = _text(value)
        if problem := check(text):
            raise ValueError(problem)
        return text

    return read


def _form(pattern: str, form: str) -> Callable[[Any], str]:
    """Return a reader of texts of one form; ``form`` describes it."""
    return _checked(lambda text: None if re.fullmatch(pattern, text) else f"expected {form}")


_partition_name = _checked(partition_name_problem)


def _number(value: Any) -> int:
    if isinstance(value, bool) or not re.fullmatch(r"[1-9][0-9]{0,8}", str(value)):
        raise ValueError("expected a whole number from 1")
    return int(value)


def _static_nodes(value: Any) -> int:
    """Read a number of JSON's, which has numbers; a text is taken only where the command line can give nothing else."""
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_STATIC_NODES:
        return value
    quoted = ", without quotes in JSON" if isinstance(value, str) else ""
    raise ValueError(f"expected a whole number from 1 to {MOST_STATIC_NODES}{quoted}")


def _flag(value: Any) -> bool:
    if str(value).lower() not in ("true", "false"):
        raise ValueError("expected true or false")
    return str(value).lower() == "true"


def _instance_type(value: Any) -> ec2.InstanceType:
    return ec2.InstanceType(_checked(instance_type_problem)(value))


def _list(value: Any) -> list[str]:
    """Read a JSON list, or the comma-separated text that the command line can give."""
    items = [item.strip() for item in value.split(",")] if isinstance(value, str) else value
    if not isinstance(items, list) or not items or not all(isinstance(item, str) and item for item in items):
        raise ValueError("expected a list, or values with commas between them")
    return items


def _subnet_ids(value: Any) -> list[str]:
    items = _list(value)
    if wrong := [item for item in items if not re.fullmatch("subnet-[0-9a-f]+", item)]:
        raise ValueError(f"{wrong[0]!r} is none: expected ids such as subnet-0123456789abcdef0")
    if twice := duplicates(items):
        raise ValueError(f"subnets must differ, {', '.join(twice)} occurs more than once")
    return items


def _ports(value: Any) -> PortRange:
    match = re.fullmatch(r"([0-9]{1,5})-([0-9]{1,5})", str(value))
    if match is None:
        raise ValueError("expected two ports such as 61000-63999")
    return PortRange(int(match[1]), int(match[2]))


def _operating_system(value: Any) -> OperatingSystem:
    if not isinstance(value, str) or value not in _OPERATING_SYSTEMS:
        raise ValueError(f"expected one of {', '.join(_OPERATING_SYSTEMS)}")
    return _OPERATING_SYSTEMS[value]()


def _on_update(value: Any) -> OnUpdate:
    if not isinstance(value, str) or value not in _ON_UPDATE:
        raise ValueError(f"expected one of {', '.join(_ON_UPDATE)}")
    return _ON_UPDATE[value]()


_EXAMPLE = {"name": "cpu", "instance_type": "c7i.large", "static_nodes": 2}
_PARTITION: Mapping[str, Callable[[Any], Any]] = {
    "name": _partition_name,
    "instance_type": _instance_type,
    "static_nodes": _static_nodes,
}
"""Every key of a partition, all of them required, and what reads its value."""


def _meant(key: str, known: Collection[str]) -> str | None:
    return next(iter(difflib.get_close_matches(key, known, n=1)), None)


def _unknown(key: str, known: Collection[str]) -> str:
    meant = _meant(key, known)
    return f"is not known: the keys are {', '.join(known)}" + (f"; did you mean {meant}?" if meant else "")


def _partition(number: int, item: Any) -> PartitionSettings:
    """Read the item of ``partitions`` that is ``number``, from 1."""
    if not isinstance(item, dict):
        raise PartitionProblems(f"number {number} is {item!r}: expected an object such as {json.dumps(_EXAMPLE)}")
    name = item.get("name")
    label = f"partition {name!r}" if isinstance(name, str) and name else f"partition number {number}"
    unknown = [key for key in item if key not in _PARTITION]
    meant = {_meant(key, _PARTITION) for key in unknown}
    problems = [f"key {key!r} of {label} {_unknown(key, _PARTITION)}" for key in unknown]
    found = {}
    for key, read in _PARTITION.items():
        if key in item:
            try:
                found[key] = read(item[key])
            except ValueError as error:
                problems.append(f"{key} of {label} is {item[key]!r}: {error}")
        elif key not in meant:
            problems.append(f"{label} has no {key}: give one such as {json.dumps(_EXAMPLE[key])}")
    if problems:
        raise PartitionProblems(*problems)
    return PartitionSettings(**found)


def _partitions(value: Any) -> list[PartitionSettings]:
    form = f"expected a list such as {json.dumps([_EXAMPLE])}"
    try:
        items = json.loads(value) if isinstance(value, str) else value
    except json.JSONDecodeError as error:
        raise ValueError(form) from error
    if not isinstance(items, list) or not items:
        raise ValueError(form)
    found: list[PartitionSettings] = []
    problems: list[str] = []
    for number, item in enumerate(items, start=1):
        try:
            found.append(_partition(number, item))
        except PartitionProblems as error:
            problems += error.args
    names = [item["name"] for item in items if isinstance(item, dict) and isinstance(item.get("name"), str)]
    if twice := duplicates(names):
        problems.append(f"partition names must differ, {', '.join(twice)} occurs more than once")
    if problems:
        raise PartitionProblems(*problems)
    return found


_KEYS_OF_THE_CDK_CLI = ("acknowledged-issue-numbers", "cli-telemetry")
"""What `cdk acknowledge` and `cdk cli-telemetry` keep in cdk.context.json."""

CONTEXT: Mapping[str, Callable[[Any], Any]] = {
    "stack_name": _form("[A-Za-z][A-Za-z0-9-]{0,127}", "up to 128 letters, digits and hyphens, a letter first"),
    "cluster_name": _checked(cluster_name_problem),
    "head_instance_type": _instance_type,
    "head_generation": _number,
    "state_volume_gib": _number,
    "partitions": _partitions,
    "default_partition": _partition_name,
    "operating_system": _operating_system,
    "image_generation": _number,
    "srun_ports": _ports,
    "job_credentials": _flag,
    "smoke_test": _flag,
    "on_update": _on_update,
    "vpc_id": _form("vpc-[0-9a-f]+", "an id such as vpc-0123456789abcdef0"),
    "subnet_ids": _subnet_ids,
    "availability_zones": _list,
}
"""Every context key of the app and what reads its value."""


def read_context(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in ``given``; keys with a colon or an ``@`` are CDK's own and are left alone.

    Raises:
        ValueError: keys that nothing reads, or values that are not allowed; all of them in one message.
    """
    settings: dict[str, Any] = {}
    problems = []
    for key, value in given.items():
        if ":" in key or key.startswith("@") or key in _KEYS_OF_THE_CDK_CLI:
            continue
        if key not in CONTEXT:
            problems.append(f"context key {key!r} {_unknown(key, CONTEXT)}")
            continue
        try:
            settings[key] = CONTEXT[key](value)
        except PartitionProblems as error:
            problems += [f"context {key}: {problem}" for problem in error.args]
        except ValueError as error:
            problems.append(f"context {key} is {value!r}: {error}")
    if "subnet_ids" in given and not {"vpc_id", "availability_zones"} <= set(given):
        problems.append("context subnet_ids needs vpc_id and availability_zones, one zone for each subnet")
    if "subnet_ids" in settings and len(settings["subnet_ids"]) != len(settings.get("availability_zones", [])):
        problems.append("context subnet_ids and availability_zones differ in length: give one zone for each subnet")
    if "vpc_id" in given and "availability_zones" in given and "subnet_ids" not in given:
        problems.append("context availability_zones with vpc_id needs subnet_ids; vpc_id alone looks both up")
    names = [item.name for item in settings.get("partitions", [])]
    if names and settings.get("default_partition", names[0]) not in names:
        problems.append(
            f"context default_partition is {settings['default_partition']!r}: choose one of {', '.join(names)}"
        )
    if "partitions" not in given:
        problems.append("context partitions is missing: list at least one, as cdk.json does")
    if problems:
        raise ValueError("\n".join(problems))
    return settings


def _vpc(scope: Construct, settings: Mapping[str, Any]) -> ec2.IVpc | None:
    if "vpc_id" not in settings:
        return None
    if "subnet_ids" not in settings:
        return ec2.Vpc.from_lookup(scope, "Vpc", vpc_id=settings["vpc_id"])
    vpc = ec2.Vpc.from_vpc_attributes(
        scope,
        "Vpc",
        vpc_id=settings["vpc_id"],
        availability_zones=settings["availability_zones"],
        private_subnet_ids=settings["subnet_ids"],
    )
    cdk.Annotations.of(vpc).acknowledge_warning(
        "@aws-cdk/aws-ec2:noSubnetRouteTableId", "The cluster adds no route to a subnet that it is given."
    )
    return vpc


def build(app: cdk.App) -> cdk.Stack:
    """Define the stack that the app's context asks for.

    Raises:
        ValueError: the context is not allowed.
    """
    settings = read_context(app.node.get_all_context())
    looks_up = "vpc_id" in settings and "subnet_ids" not in settings
    account, region = os.environ.get("CDK_DEFAULT_ACCOUNT"), os.environ.get("CDK_DEFAULT_REGION")
    if looks_up and not (account and region):
        raise ValueError(
            "context vpc_id alone is looked up in your account: sign in and set a Region, "
            "or give subnet_ids and availability_zones as well"
        )
    stack = cdk.Stack(
        app,
        settings.get("stack_name", "SlurmCluster"),
        # without a look-up, one template serves every account and Region
        env=cdk.Environment(account=account, region=region) if looks_up else None,
    )
    options: dict[str, Any] = {
        name: settings[name]
        for name in (
            "cluster_name",
            "default_partition",
            "head_generation",
            "head_instance_type",
            "image_generation",
            "job_credentials",
            "on_update",
            "operating_system",
            "smoke_test",
            "srun_ports",
        )
        if name in settings
    }
    if "vpc_id" not in settings:
        options["availability_zones"] = settings.get("availability_zones")
    if "state_volume_gib" in settings:
        options["state_volume_size"] = cdk.Size.gibibytes(settings["state_volume_gib"])
    cluster = SlurmCluster(stack, "Cluster", vpc=_vpc(stack, settings), **options)
    partitions = [
        cluster.add_partition(item.name, instance_type=item.instance_type, static_nodes=item.static_nodes)
        for item in settings["partitions"]
    ]
    head, job_user = cluster.head_node.instance.instance_id, cluster.foundation.operating_system.job_user
    cdk.CfnOutput(
        stack,
        "Shell",
        description="Opens a shell as the job user on the head node",
        value=f"aws ssm start-session --region {stack.region} --target {head} "
        f"--document-name AWS-StartInteractiveCommand --parameters 'command=[\"sudo -iu {job_user}\"]'",
    )
    cdk.CfnOutput(stack, "HeadInstanceId", description="Instance id of the head node", value=head)
    cdk.CfnOutput(
        stack,
        "NodeNames",
        description="Slurm's names of the workers",
        value=" ".join(name for partition in partitions for name in partition.node_names),
    )
    if cluster.smoke_test:
        cdk.CfnOutput(
            stack,
            "Hosts",
            description="Workers that ran a job, and the host name that each printed",
            value=cluster.smoke_test.hosts,
        )
    cdk.CfnOutput(
        stack,
        "StateVolumeId",
        description="Volume with the head's state, which deleting the stack leaves to you",
        value=cluster.head_node.state_volume.volume_id,
    )
    return stack


def main() -> None:
    app = cdk.App(analytics_reporting=False)
    try:
        build(app)
    except ValueError as error:
        sys.exit(f"slurm_cluster: {error}")
    packs = (cdk_nag.AwsSolutionsChecks, cdk_nag.NIST80053R5Checks, cdk_nag.HIPAASecurityChecks)
    cdk.Validations.of(app).add_plugins(SlurmReachability(), *(pack(app) for pack in packs))
    app.synth()


if __name__ == "__main__":
    main()

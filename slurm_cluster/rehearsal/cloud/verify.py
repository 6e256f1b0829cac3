"""After a deployment: every declared property compared with what AWS's APIs report of the resource.

CloudFormation may say CREATE_COMPLETE of a resource that lacks half of what its template declares; on the emulated AWS
that would make the rehearsal prove less than it seems to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from slurm_cluster.rehearsal.cloud import declared, reported_ec2, reported_services
from slurm_cluster.rehearsal.cloud.reported import NotFound, Reader
from slurm_cluster.rehearsal.cloud.server import Cloud

READERS: dict[str, Reader] = {**reported_ec2.READERS, **reported_services.READERS}

NOT_COMPARED = {
    "AWS::CDK::Metadata": "it makes nothing",
    "AWS::ECR::Repository": "only the CDK's bootstrap stack has one",
    "AWS::S3::Bucket": "only the CDK's bootstrap stack has one",
    "AWS::S3::BucketPolicy": "only the CDK's bootstrap stack has one",
}

_MAY_HAVE_MORE = {"SecurityGroupEgress", "SecurityGroupIngress"}
"""A group also has the rules that resources of their own add to it."""

_DOCUMENTS = {"AssumeRolePolicyDocument", "PolicyDocument"}


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A declared value that the API does not report."""

    resource_type: str
    physical_id: str
    path: str
    declared: Any
    reported: Any

    def __str__(self) -> str:
        return (
            f"{self.resource_type} {self.physical_id}: {self.path} is declared as {self.declared!r}, "
            f"the API reports {self.reported!r}"
        )


class _Found(Protocol):
    def __call__(self, path: str, declared: Any, reported: Any) -> Difference: ...


def differences(cloud: Cloud) -> list[Difference]:
    """Return every declared property that the API reports otherwise; empty when the deployment is as declared.

    Raises:
        KeyError: a provisioned type has no reader.
    """
    found: list[Difference] = []
    resources = declared.read(cloud.declared_file)
    for resource_type, by_id in resources.items():
        if resource_type in NOT_COMPARED:
            continue
        read = READERS[resource_type]
        for physical_id, properties in by_id.items():
            found += _differences_of(cloud, read, resource_type, physical_id, properties)
    return [*found, *_undeclared_rules(cloud, resources)]


def _differences_of(
    cloud: Cloud, read: Reader, resource_type: str, physical_id: str, properties: Mapping[str, Any]
) -> list[Difference]:
    def difference(path: str, declared: Any, reported: Any) -> Difference:
        return Difference(
            resource_type=resource_type, physical_id=physical_id, path=path, declared=declared, reported=reported
        )

    try:
        reported = read(cloud, physical_id, properties)
    except NotFound as error:
        return [difference("the resource", "present", str(error))]
    return list(compare(properties, reported, "", difference))


def compare(declared: Any, reported: Any, path: str, found: _Found) -> Iterator[Difference]:
    """Yield what of ``declared`` is not in ``reported``; ``reported`` may say more."""
    name = path.rpartition(".")[2]
    if name in _DOCUMENTS:
        if declared != reported:
            yield found(path, declared, reported)
    elif isinstance(declared, Mapping):
        for key, value in declared.items():
            below = f"{path}.{key}" if path else key
            if not isinstance(reported, Mapping) or key not in reported:
                yield found(below, value, None)
            else:
                yield from compare(value, reported[key], below, found)
    elif isinstance(declared, list):
        yield from _compare_lists(declared, reported, path, found)
    elif _scalar(declared) != _scalar(reported):
        yield found(path, declared, reported)


def _compare_lists(declared: list[Any], reported: Any, path: str, found: _Found) -> Iterator[Difference]:
    name = path.rpartition(".")[2]
    items = reported if isinstance(reported, list) else []
    left = list(items)
    for value in declared:
        match = next((item for item in left if not any(compare(value, item, path + "[]", found))), None)
        if match is None:
            yield found(path, value, items)
        else:
            left.remove(match)
    if left and name not in _MAY_HAVE_MORE and not name.endswith("Tags"):
        yield found(path, "nothing more", left)


def _scalar(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _undeclared_rules(cloud: Cloud, resources: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[Difference]:
    """Yield each security group rule that no resource declares: it would let pass what the template does not."""
    groups = resources.get("AWS::EC2::SecurityGroup", {})
    if not groups:
        return
    alone = {
        rule_id for kind in ("Ingress", "Egress") for rule_id in resources.get(f"AWS::EC2::SecurityGroup{kind}", {})
    }
    with_egress = {properties["GroupId"] for properties in resources.get("AWS::EC2::SecurityGroupEgress", {}).values()}
    pages = cloud.client("ec2").describe_security_group_rules(Filters=[{"Name": "group-id", "Values": list(groups)}])
    for group_id, properties in groups.items():
        for kind, is_egress in (("SecurityGroupIngress", False), ("SecurityGroupEgress", True)):
            others = [
                rule
                for rule in pages["SecurityGroupRules"]
                if rule["GroupId"] == group_id
                and rule["IsEgress"] is is_egress
                and rule["SecurityGroupRuleId"] not in alone
            ]
            inline = properties.get(kind) or []
            # EC2 gives a group without declared egress one rule that allows everything out.
            has_default = is_egress and not inline and group_id not in with_egress
            allowed = 1 if has_default else len(inline)
            if len(others) > allowed:
                yield Difference(
                    resource_type="AWS::EC2::SecurityGroup",
                    physical_id=group_id,
                    path=kind,
                    declared=inline,
                    reported=others,
                )

"""docs/compliance.md: every finding of cdk-nag and CDK that a construct answers, with its reason, by the app's tree."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from constructs import IConstruct

from scripts.default_template import default_context
from slurm_cluster import SlurmCluster

PAGE = Path(__file__).parents[1] / "docs" / "compliance.md"

_INTRODUCTION = """# Compliance

The app is checked by cdk-nag's packs **AwsSolutions**, **NIST 800-53 rev. 5** (`NIST.800.53.R5`) and **HIPAA Security**
(`HIPAA.Security`), and by CDK's own rules (`CloudFormation-Validate`). What a property fixes is fixed, unless it costs
every user money or quota, or would replace or stop a node of a running cluster. What is left is answered beside the
line that it is about, and listed here: the rules, the construct below your `SlurmCluster`, and the reason.

Tests keep three things: that nothing else is found, that nothing is answered which is not found, and that this page
is what the constructs say (`make docs` writes it).

A pack that your own app adds checks your other resources as well. Where your rules ask for more than this, CDK's escape
hatches give it, for example a key of your own:

```python
import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from aws_cdk import aws_secretsmanager as secretsmanager

from slurm_cluster import SlurmCluster

app = cdk.App()
stack = cdk.Stack(app, "Regulated")
cluster = SlurmCluster(stack, "Cluster")
cluster.add_partition("cpu", instance_type=ec2.InstanceType("c7i.large"), static_nodes=2)

key = kms.Key(stack, "Key", enable_key_rotation=True)
secret = cluster.foundation.munge_key.node.default_child
assert isinstance(secret, secretsmanager.CfnSecret)
secret.kms_key_id = key.key_arn
key.grant_decrypt(cluster)
app.synth()
```
"""


@dataclass(frozen=True, order=True)
class Answer:
    """One acknowledgement."""

    reason: str
    place: str
    rule: str


def _apps() -> Iterator[tuple[cdk.App, IConstruct]]:
    """Yield apps that have every answer between them, each with its cluster."""
    for zone in (None, "eu-west-1a"):
        app = cdk.App(context=default_context(), outdir=tempfile.mkdtemp(), analytics_reporting=False)
        stack = cdk.Stack(app, "Stack")
        vpc = zone and ec2.Vpc.from_vpc_attributes(
            stack,
            "Vpc",
            vpc_id="vpc-0123456789abcdef0",
            availability_zones=[zone],
            private_subnet_ids=["subnet-0123456789abcdef0"],
            private_subnet_route_table_ids=["rtb-0123456789abcdef0"],
        )
        cluster = SlurmCluster(stack, "Cluster", vpc=vpc or None)
        cluster.add_partition("cpu", instance_type=ec2.InstanceType("c7i.large"), static_nodes=1)
        yield app, cluster


def answers() -> list[Answer]:
    """Return every acknowledgement below a cluster, and of what a stack has once for all clusters in it."""
    found = set()
    for app, cluster in _apps():
        for construct in app.node.find_all():
            path = construct.node.path
            if path in ("", "Stack"):
                continue  # what CDK answers for any stack
            place = path.removeprefix(f"{cluster.node.path}/").removeprefix("Stack/")
            for entry in construct.node.metadata:
                if entry.type == cdk.Validations.ACKNOWLEDGED_RULES_METADATA_KEY:
                    found |= {
                        Answer(reason, place, rule.removeprefix("Annotation::")) for rule, reason in entry.data.items()
                    }
    return sorted(found)


def page() -> str:
    """Return the page."""
    rows = []
    for reason, group in groupby(answers(), key=lambda item: item.reason):
        same = list(group)
        rules, places = (
            "<br>".join(f"`{name}`" for name in sorted(set(names)))
            for names in ((item.rule for item in same), (item.place for item in same))
        )
        rows.append(f"| {rules} | {places} | {reason} |")
    return "\n".join(
        [_INTRODUCTION, "| rule | construct | why it stays as it is |", "|---|---|---|", *sorted(rows), ""]
    )


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

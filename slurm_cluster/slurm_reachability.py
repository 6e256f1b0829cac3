"""SlurmReachability: synthesis fails where a connection that Slurm opens is closed, and says which rule to add."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import jsii
from aws_cdk import (
    IPolicyValidationContext,
    IPolicyValidationPlugin,
    PolicyValidationPluginReport,
    PolicyViolatingResource,
    PolicyViolation,
    Stack,
)
from constructs import IConstruct

from slurm_cluster.cluster_registry import registered_clusters
from slurm_cluster.model.flows import UNPRIVILEGED_TCP, PortRange, Role, SlurmPorts, cluster_flows
from slurm_cluster.reachability import FlowProof, MissingRule, RuleUse, load, prove
from slurm_cluster.reachability.places import Place, place_for_rule, place_of_rule
from slurm_cluster.reachability.sarif import WIDER
from slurm_cluster.reachability.table import not_needed, way
from slurm_cluster.synthesized import SynthesizedTemplates

_NO_CLUSTER = "no-cluster"
_NOT_PROVEN = "not-proven"


@dataclass(frozen=True, kw_only=True)
class _Cluster:
    """What is proven: the constructs of head and workers, and how to call them."""

    name: str
    head: Sequence[IConstruct]
    workers: Sequence[IConstruct]
    ports: SlurmPorts


@jsii.implements(IPolicyValidationPlugin)
class SlurmReachability:
    """Proves at synthesis that the deployed rules let every connection of Slurm through.

    Add it once to an app: ``Validations.of(app).add_plugins(SlurmReachability())``. It looks at the synthesized
    templates, so at overrides, aspects and groups of your own as well. A closed connection fails synthesis with the
    rule to add; one that depends on what no template says, such as the rules of an imported group, is a warning. Where
    you know better, acknowledge it by ``Acknowledgment(id="SlurmReachability::srun-io", reason=...)``; the ids are
    those of ``slurm_cluster.model.flows``.

    Args:
        head: security groups, or the instance, of a head node that is not a SlurmCluster's. By default every
            SlurmCluster of the app is proven.
        workers: security groups, instances, launch templates or auto scaling groups of its workers.
        srun_ports: its SrunPortRange; by default none, so that srun takes any of 1024-65535. Of a SlurmCluster its own.
        strict: whether a rule that lets in more than Slurm needs fails synthesis, too; no by default.

    Raises:
        ValueError: only one of ``head`` and ``workers`` is given, or ``srun_ports`` without them.
    """

    def __init__(
        self,
        *,
        head: IConstruct | Sequence[IConstruct] | None = None,
        workers: IConstruct | Sequence[IConstruct] | None = None,
        srun_ports: PortRange = UNPRIVILEGED_TCP,
        strict: bool = False,
    ) -> None:
        given = [name for name, value in (("head", head), ("workers", workers)) if value is not None]
        if len(given) == 1:
            raise ValueError(f"{given[0]} was given alone: give head and workers, or neither to find the SlurmClusters")
        if not given and srun_ports != UNPRIVILEGED_TCP:
            raise ValueError("srun_ports was given without head and workers: a SlurmCluster has its own, leave it out")
        self._given = (
            _Cluster(
                name="the cluster", head=_listed(head), workers=_listed(workers), ports=SlurmPorts(srun=srun_ports)
            )
            if given
            else None
        )
        self._strict = strict

    @property
    def name(self) -> str:
        """Name in the validation report, and before ``::`` in acknowledgements."""
        return "SlurmReachability"

    @property
    def version(self) -> str | None:
        """Not reported: it is that of the package."""
        return None

    @property
    def rule_ids(self) -> list[str]:
        """The flows that every cluster has, and the finding of a rule that is too wide."""
        return [*(flow.id for flow in cluster_flows(SlurmPorts())), WIDER]

    def validate(self, context: IPolicyValidationContext) -> PolicyValidationPluginReport:
        """Prove every cluster; the CDK calls this when the templates are written."""
        clusters = [self._given] if self._given else list(_found(context.app_construct))
        violations = [violation for cluster in clusters for violation in self._violations(cluster, context)]
        if not clusters:
            violations = [_no_cluster(context.app_construct)]
        return PolicyValidationPluginReport(
            success=all(violation.severity != "error" for violation in violations), violations=violations
        )

    def _violations(self, cluster: _Cluster, context: IPolicyValidationContext) -> Iterator[PolicyViolation]:
        templates = SynthesizedTemplates(context)
        first = cluster.head[0]
        if not templates.have(Stack.of(first)):
            # some releases of the CDK call once for each environment
            return
        here = _construct(first)
        try:
            proof = prove(
                load(templates.beside(Stack.of(first))),
                head=[templates.name(item) for item in cluster.head],
                workers=[templates.name(item) for item in cluster.workers],
                ports=cluster.ports,
            )
        except ValueError as error:
            yield _violation(_NOT_PROVEN, f"{cluster.name} cannot be proven: {error}", [here])
            return
        places = _Places(templates, here)
        for item in proof.closed:
            yield _closed(item, places)
        for item in proof.unknown:
            yield _unknown(item, places)
        if self._strict:
            for use in proof.wider:
                yield _wider(use, places)


def _listed(value: IConstruct | Sequence[IConstruct] | None) -> list[IConstruct]:
    if value is None:
        return []
    return list(value) if isinstance(value, Sequence) else [value]


def _found(root: IConstruct) -> Iterator[_Cluster]:
    for cluster in registered_clusters(root):
        # the machines themselves where there are any: an override may have taken them out of their group
        ends = {role: cluster.nodes.get(role) or [cluster.groups[role]] for role in Role}
        yield _Cluster(name=cluster.path, head=ends[Role.HEAD], workers=ends[Role.WORKER], ports=cluster.ports)


@dataclass(frozen=True)
class _Places:
    """Where findings are shown: at the resource that a rule belongs to, or else at the head."""

    templates: SynthesizedTemplates
    head: PolicyViolatingResource

    def at(self, template: str, place: Place) -> PolicyViolatingResource:
        path = self.templates.path(template)
        if path is None:
            return self.head
        return PolicyViolatingResource(
            resource_logical_id=place.logical_id,
            template_path=str(path),
            locations=[f"Properties.{place.inline}"] if place.inline else [],
        )

    def lacking(self, rules: Sequence[MissingRule]) -> list[PolicyViolatingResource]:
        places = dict.fromkeys((rule.template, place_for_rule(rule)) for rule in rules)
        return [self.at(template, place) for template, place in places] or [self.head]


def _construct(construct: IConstruct) -> PolicyViolatingResource:
    return PolicyViolatingResource(construct_path=construct.node.path, locations=[])


def _violation(
    rule: str,
    description: str,
    places: Sequence[PolicyViolatingResource],
    *,
    severity: str = "error",
    fix: str | None = None,
) -> PolicyViolation:
    return PolicyViolation(
        rule_name=rule, description=description, severity=severity, fix=fix, violating_resources=list(places)
    )


def _closed(item: FlowProof, places: _Places) -> PolicyViolation:
    flow = item.flow
    reasons = "; ".join(dict.fromkeys(rule.reason for rule in item.missing))
    code = "\n".join(dict.fromkeys(rule.cdk() for rule in item.missing))
    return _violation(
        flow.id,
        f"{flow.id} is closed ({way(flow)}, TCP {flow.ports}): {reasons}. What users would see: {flow.symptom}",
        places.lacking(item.missing),
        fix=f"add in the stack's constructor:\n{code}" if code else None,
    )


def _unknown(item: FlowProof, places: _Places) -> PolicyViolation:
    flow = item.flow
    return _violation(
        flow.id,
        f"{flow.id} may be closed ({way(flow)}, TCP {flow.ports}). To know: {'; '.join(item.needs)}",
        places.lacking(item.missing),
        severity="warning",
    )


def _wider(use: RuleUse, places: _Places) -> PolicyViolation:
    serves = f"; it serves {', '.join(flow.id for flow in use.flows)}" if use.flows else ""
    return _violation(
        WIDER,
        f"{use.rule.text}{serves}. {not_needed(use)}",
        [places.at(use.rule.template, place_of_rule(use.rule))],
    )


def _no_cluster(root: IConstruct) -> PolicyViolation:
    return _violation(
        _NO_CLUSTER,
        "the app has no SlurmCluster, so nothing was proven: give head and workers, or leave SlurmReachability out",
        [_construct(root)],
    )

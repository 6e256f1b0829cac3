"""SmokeTest: the stack is complete only when a job ran on each of its static workers."""

from __future__ import annotations

import hashlib
import json

import jsii
from aws_cdk import (
    Acknowledgment,
    CustomResource,
    Duration,
    IStableAnyProducer,
    IStableStringProducer,
    Lazy,
    RemovalPolicy,
    Size,
    Stack,
    Validations,
)
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_ssm as ssm
from constructs import Construct, DependencyGroup, IDependable, IValidation

from slurm_cluster.answering_function import define_answering_function, define_function_role
from slurm_cluster.compliance import acknowledge_in_nist_and_hipaa, as_cdk_nag_writes
from slurm_cluster.foundation import ClusterFoundation
from slurm_cluster.head_node import HeadNode
from slurm_cluster.model.node_files import CLUSTER_TAG
from slurm_cluster.package_asset import define_function_code

_FUNCTION = (
    "model",
    *(f"runtime/{name}.py" for name in ("connection_faults", "connections", "evidence", "fault", "host_faults")),
    *(f"runtime/{name}.py" for name in ("machine_faults", "probe_plan", "slurm_faults", "verdict")),
    "runtime/functions/smoke_test",
)
"""What the functions import, besides what all functions do."""

_LONGEST_BUDGET = Duration.minutes(55)
_SHORTEST_BUDGET = Duration.minutes(10)
_MARGIN = Duration.minutes(2)
"""From the end of the budget, when the function answers at the latest, to CloudFormation's own time-out."""


class OnUpdate:
    """Which workers the smoke test of an update tests; the first deployment tests all of them.

    A test that is added to a cluster which has run for a while, as an update from 0.1.0 does, waits for nobody's job
    either: it is one of the free workers unless it is to be all.
    """

    def __init__(self, value: str) -> None:
        if value not in ("free", "all", "off"):
            raise ValueError(f"on_update is {value!r}: give OnUpdate.free(), OnUpdate.all() or OnUpdate.off()")
        self.value = value

    @classmethod
    def free(cls) -> OnUpdate:
        """Those that run no job; one that runs jobs and answers counts as proven, and nobody's job waits."""
        return cls("free")

    @classmethod
    def all(cls) -> OnUpdate:
        """All of them: the deployment waits until each has been free."""
        return cls("all")

    @classmethod
    def off(cls) -> OnUpdate:
        """None: the head takes up its new configuration, and that is all that is proven."""
        return cls("off")


class SmokeTest(Construct):
    """Runs ``srun`` on every static worker before the stack is complete, and again when something that matters changed.

    On an update it has the head take up its new configuration first, and so does the rollback of one that fails. When
    it does not pass, the deployment fails with a reason that names the cause; the whole report is in ``log_group``,
    which outlives the stack. A rollback goes on whether its test passes or not.

    It runs when the cluster is created and when instances, node programs, parameters, rules between the nodes or
    ``budget`` change; what ``add_property_override`` puts over them is not seen. A rule that an update takes away is
    still there while the update is tested: CloudFormation deletes at the end.

    Args:
        scope: parent construct. Of partitions in several stacks, in the stack that is deployed last.
        construct_id: id in the parent.
        head_node: the head of the cluster.
        on_update: which workers an update tests; the free ones by default.
        budget: how long the cluster may take to become ready, 10 to 55 minutes; 30 minutes by default. A failure is
            reported when it is known, not at the end.

    Raises:
        ValueError: the budget is not allowed.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        head_node: HeadNode,
        on_update: OnUpdate | None = None,
        budget: Duration | None = None,
    ) -> None:
        budget = budget or Duration.minutes(30)
        if problems := smoke_test_problems(budget=budget):
            raise ValueError("; ".join(problems))
        super().__init__(scope, construct_id)
        self.head_node = head_node
        foundation = head_node.foundation
        self.log_group = logs.LogGroup(
            self, "Log", retention=logs.RetentionDays.THREE_MONTHS, removal_policy=RemovalPolicy.RETAIN
        )
        """Log group of the reports."""
        acknowledge_in_nist_and_hipaa(
            self.log_group,
            "CloudWatchLogGroupEncrypted",
            reason="CloudWatch Logs encrypts it with a key of its own; it holds states and error texts of nodes.",
        )
        role = self._define_role(foundation)
        code = define_function_code(self, "Code", *_FUNCTION)
        function = define_answering_function(
            self,
            "Function",
            description="Tests whether jobs run on a Slurm cluster",
            code=code,
            handler="smoke_test.index.on_event",
            role=role,
            log_group=self.log_group,
            timeout=Duration.minutes(15),
            memory=Size.mebibytes(256),
            # not properties of the resource: a change of them is no reason to test
            environment={
                "ON_UPDATE": (on_update or OnUpdate.free()).value,
                "BUDGET_SECONDS": str(int(budget.to_seconds())),
                "LOG_GROUP": self.log_group.log_group_name,
            },
        )
        dead = define_answering_function(
            self,
            "Answerer",
            description="Answers CloudFormation when the smoke test died",
            code=code,
            handler="smoke_test.index.on_death",
            role=role,
            log_group=self.log_group,
            timeout=Duration.minutes(2),
            environment={"LOG_GROUP": self.log_group.log_group_name},
        )
        # of its own, because the functions need the role and this needs the functions
        invoke = iam.Policy(
            self,
            "Invoke",
            roles=[role],
            statements=[
                iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[function.attr_arn, dead.attr_arn])
            ],
        )
        acknowledge_in_nist_and_hipaa(
            invoke, "IAMNoInlinePolicy", reason="It names the two functions of this role and comes and goes with them."
        )
        watched = lambda_.CfnEventInvokeConfig(
            self,
            "OnDeath",
            function_name=function.ref,
            qualifier="$LATEST",
            maximum_retry_attempts=0,  # a request that failed is answered; CloudFormation decides what comes next
            maximum_event_age_in_seconds=300,
            destination_config=lambda_.CfnEventInvokeConfig.DestinationConfigProperty(
                on_failure=lambda_.CfnEventInvokeConfig.OnFailureProperty(destination=dead.attr_arn)
            ),
        )
        watched.node.add_dependency(invoke)
        resource = CustomResource(
            self,
            "Resource",
            resource_type="Custom::SlurmSmokeTest",
            service_token=function.attr_arn,
            service_timeout=budget.plus(_MARGIN),
            properties={
                "HeadInstanceId": head_node.instance.instance_id,
                "NodeNames": Lazy.any(_NodeNames(self)),
                "WorkerInstanceIds": Lazy.any(_WorkerInstanceIds(self)),
                "HeadGroupId": foundation.security.head_group.security_group_id,
                "WorkerGroupId": foundation.security.worker_group.security_group_id,
                "SrunPorts": str(foundation.ports.srun),
                "Version": Lazy.string(_Version(self)),
            },
        )
        resource.node.add_dependency(
            watched, foundation.desired_state, head_node.record, foundation.security.established
        )
        self.ready: IDependable = DependencyGroup(resource)
        """What is complete only when the test has passed."""
        self.hosts = resource.get_att_string("Hosts")
        """Worker and host of each task that ran, ``cpu-static-1=ip-10-0-64-5,...``; known when deployed."""
        self.output = resource.get_att_string("Output")
        """What the tasks printed, a line each; known when deployed."""
        self.node.add_validation(_WorkersAreThere(self))

    def _define_role(self, foundation: ClusterFoundation) -> iam.Role:
        stack = Stack.of(self)
        instances = stack.format_arn(service="ec2", resource="instance", resource_name="*")
        document = stack.format_arn(service="ssm", account="", resource="document", resource_name="AWS-RunShellScript")
        role = define_function_role(
            self,
            "Role",
            policy_name="TestCluster",
            policy=iam.PolicyDocument(
                statements=[
                    iam.PolicyStatement(sid="RunShellScript", actions=["ssm:SendCommand"], resources=[document]),
                    iam.PolicyStatement(
                        sid="RunOnNodes",
                        actions=["ssm:SendCommand"],
                        # nodes of this cluster only, also those that a later update adds
                        resources=[instances],
                        conditions={"StringEquals": {f"ssm:resourceTag/{CLUSTER_TAG}": foundation.cluster_id}},
                    ),
                    iam.PolicyStatement(
                        sid="ReadConsoles",
                        actions=["ec2:GetConsoleOutput"],
                        resources=[instances],
                        conditions={"StringEquals": {f"aws:ResourceTag/{CLUSTER_TAG}": foundation.cluster_id}},
                    ),
                    iam.PolicyStatement(
                        sid="Observe",
                        actions=[
                            "ec2:DescribeInstances",
                            "ssm:CancelCommand",
                            "ssm:DescribeInstanceInformation",
                            "ssm:GetCommandInvocation",
                        ],
                        # none of these has resource-level permissions
                        resources=["*"],
                    ),
                    iam.PolicyStatement(
                        sid="SeeRollback", actions=["cloudformation:DescribeStacks"], resources=[stack.stack_id]
                    ),
                ]
            ),
            log_group=self.log_group,
        )
        Validations.of(role).acknowledge(
            Acknowledgment(
                id=f"AwsSolutions-IAM5[Resource::{as_cdk_nag_writes(stack, instances)}]",
                reason="Instance ids are not known before the instances are; the condition allows only those that are "
                "tagged as nodes of this cluster.",
            ),
            Acknowledgment(
                id="AwsSolutions-IAM5[Resource::*]",
                reason="EC2's Describe actions and Systems Manager's actions on commands have no resource-level "
                "permissions.",
            ),
        )
        return role

    def workers(self) -> dict[str, ec2.Instance]:
        """Return the static workers that are deployed before the test, by Slurm's names."""
        own, deployed_later = Stack.of(self), Stack.of(self.head_node)
        return {
            name: instance
            for name, instance in self.head_node.foundation.workers.items()
            # from the head's stack, those of another one cannot be seen
            if own is not deployed_later or Stack.of(instance) is own
        }


def smoke_test_problems(*, budget: Duration) -> list[str]:
    """Return what is wrong with the options of a SmokeTest."""
    if not _SHORTEST_BUDGET.to_seconds() <= budget.to_seconds() <= _LONGEST_BUDGET.to_seconds():
        return [f"the smoke test's budget is {budget.to_human_string()}: give 10 to 55 minutes"]
    return []


@jsii.implements(IStableAnyProducer)
class _NodeNames:
    """Names of the workers, once all partitions are defined."""

    def __init__(self, test: SmokeTest) -> None:
        self._test = test

    def produce(self) -> list[str]:
        return list(self._test.workers())


@jsii.implements(IStableAnyProducer)
class _WorkerInstanceIds:
    """Their instance ids, in the same order."""

    def __init__(self, test: SmokeTest) -> None:
        self._test = test

    def produce(self) -> list[str]:
        return [instance.instance_id for instance in self._test.workers().values()]


@jsii.implements(IStableStringProducer)
class _Version:
    """Digest of what decides whether jobs run and is not a property of the resource itself."""

    def __init__(self, test: SmokeTest) -> None:
        self._test = test

    def produce(self) -> str:
        foundation = self._test.head_node.foundation
        instances = {"": self._test.head_node.instance, **self._test.workers()}
        content = {
            # as they are in the template, whatever changed them on the way there
            "parameters": {
                child.node.path: [child.name, child.value]
                for child in foundation.desired_state.node.find_all()
                if isinstance(child, ssm.CfnParameter)
            },
            "rules": sorted(
                [rule.node.id, rule.group_id, rule.source_security_group_id, rule.from_port, rule.to_port]
                for rule in foundation.security.rules
            ),
            "instances": {
                name: [item.instance.instance_type, item.instance.user_data] for name, item in instances.items()
            },
        }
        resolved = Stack.of(self._test).resolve(content)
        return hashlib.sha256(json.dumps(resolved, sort_keys=True).encode()).hexdigest()


@jsii.implements(IValidation)
class _WorkersAreThere:
    """Looks for workers that the test would wait for and that come only after it."""

    def __init__(self, test: SmokeTest) -> None:
        self._test = test

    def validate(self) -> list[str]:
        seen = self._test.workers()
        unseen = [name for name in self._test.head_node.foundation.workers if name not in seen]
        if not unseen:
            return []
        return [
            f"{', '.join(unseen)} are in another stack, which is deployed after the smoke test that waits for them: "
            "pass smoke_test=False to SlurmCluster and define a SmokeTest in that stack"
        ]

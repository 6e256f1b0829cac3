"""A failed deployment is told by what failed by itself, whatever the CDK CLI prints around it."""

from __future__ import annotations

from slurm_cluster.rehearsal.cloud.cdk_failure import failure_lines

ROLLED_BACK = """\
Lab | 8/10 | 8:57:25 PM | CREATE_IN_PROGRESS   | AWS::EC2::Instance         | Web (Web3C8)
Lab | 8/10 | 8:57:26 PM | CREATE_FAILED        | Custom::SlurmSmokeTest     | SmokeTest/Test (Test1) srun-io-blocked: x
Lab | 8/10 | 8:57:26 PM | CREATE_FAILED        | AWS::EC2::EIP              | Ip (Ip1) Resource creation cancelled
Lab | 8/10 | 8:57:26 PM | ROLLBACK_IN_PROGRESS | AWS::CloudFormation::Stack | Lab Rollback requested
Lab | 3/10 | 8:57:26 PM | DELETE_COMPLETE      | AWS::EC2::RouteTable       | Vpc/Association (Ass1)
Lab | 3/10 | 8:57:26 PM | DELETE_FAILED        | AWS::EC2::VPC              | Vpc (Vpc1) DependencyViolation
Lab | 2/10 | 8:57:26 PM | ROLLBACK_COMPLETE    | AWS::CloudFormation::Stack | Lab Rollback complete

Failed resources:
Lab | 8:57:26 PM | CREATE_FAILED        | Custom::SlurmSmokeTest     | SmokeTest/Test (Test1) srun-io-blocked: x
❌  Lab failed to deploy
‣ DeploymentError: Resource updates failed:
"""
REASONS = [
    "Lab: CREATE_FAILED Custom::SlurmSmokeTest SmokeTest/Test (Test1) srun-io-blocked: x",
    "Lab: DELETE_FAILED AWS::EC2::VPC Vpc (Vpc1) DependencyViolation",
]


def test_reasons_come_first_and_the_state_of_the_stack_last() -> None:
    lines = list(failure_lines(ROLLED_BACK.splitlines()))
    assert lines == [*REASONS, "Lab: ROLLBACK_COMPLETE"]


def test_a_reason_is_not_lost_to_a_long_rollback() -> None:
    first, *rest = ROLLED_BACK.splitlines()[1:]
    deleted = ROLLED_BACK.splitlines()[4]
    assert next(failure_lines([first, *[deleted] * 500, *rest[:6]])) == REASONS[0]


def test_what_failed_without_a_resource_is_told_by_the_last_lines() -> None:
    printed = [f"line {number}" for number in range(100)]
    stack = "Lab | 0/1 | 8:57:26 PM | CREATE_FAILED           | AWS::CloudFormation::Stack            | Lab Validation"
    assert list(failure_lines([*printed, stack])) == [*printed[41:], stack]

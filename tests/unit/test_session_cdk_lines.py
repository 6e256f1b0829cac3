import pytest

from slurm_cluster.rehearsal.stage import is_routine

STACK = "SlurmCluster |  5/52 | 7:09:18 PM |"


@pytest.mark.parametrize(
    "line",
    [
        f"{STACK} CREATE_COMPLETE         | AWS::IAM::Role                        | Cluster/Role (Role1)",
        f"{STACK} CREATE_IN_PROGRESS      | AWS::EC2::VPC                         | Cluster/Vpc (Vpc1)",
        "CDKToolkit |  0/15 | 7:06:59 PM | CREATE_IN_PROGRESS      | AWS::CloudFormation::Stack | CDKToolkit",
        "SlurmCluster: creating CloudFormation changeset...",
    ],
)
def test_lines_that_say_that_all_is_well_are_left_out(line: str) -> None:
    assert is_routine(line)


@pytest.mark.parametrize(
    "line",
    [
        f"{STACK} CREATE_COMPLETE         | AWS::EC2::Instance                    | Cluster/HeadNode/Instance (Head1)",
        f"{STACK} CREATE_FAILED           | AWS::IAM::Role                        | Cluster/Role (Role1) refused",
        f"{STACK} DELETE_SKIPPED          | AWS::EC2::Volume                      | Cluster/State (State1)",
        f"{STACK} UPDATE_ROLLBACK_COMPLETE | AWS::CloudFormation::Stack           | SlurmCluster",
        "✅  SlurmCluster",
        "❌  SlurmCluster failed: _ToolkitError: The stack named SlurmCluster failed to deploy",
    ],
)
def test_the_others_are_shown(line: str) -> None:
    assert not is_routine(line)

"""Proof that every connection Slurm opens is let through, from CloudFormation templates alone.

``prove(load(["cluster.yaml"]))`` says of each flow of ``slurm_cluster.model.flows`` whether the templates' security
groups and network ACLs let it through, by which rule, and which rule to add where not. It needs no AWS account and no
aws_cdk.
"""

from slurm_cluster.reachability.errors import InputError
from slurm_cluster.reachability.proof import (
    Direction,
    FlowProof,
    FoundRule,
    MissingRule,
    Proof,
    Roles,
    RuleUse,
    Status,
)
from slurm_cluster.reachability.prover import prove, prove_network
from slurm_cluster.reachability.templates import Templates, load

__all__ = [
    "Direction",
    "FlowProof",
    "FoundRule",
    "InputError",
    "MissingRule",
    "Proof",
    "Roles",
    "RuleUse",
    "Status",
    "Templates",
    "load",
    "prove",
    "prove_network",
]

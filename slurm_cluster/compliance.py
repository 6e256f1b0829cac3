"""Findings of cdk-nag's packs that a construct answers with a reason, beside the line that they are about."""

from __future__ import annotations

from aws_cdk import Acknowledgment, Stack, Validations
from constructs import IConstruct

_PACKS = ("NIST.800.53.R5", "HIPAA.Security")


def acknowledge_in_nist_and_hipaa(construct: IConstruct, *rules: str, reason: str) -> None:
    """Answer rules that cdk-nag's packs NIST 800-53 R5 and HIPAA Security share.

    Args:
        construct: the construct that they find, or one above it.
        rules: names without the pack's, such as ``LambdaDLQ``.
        reason: why it is as it is; docs/compliance.md shows it.
    """
    Validations.of(construct).acknowledge(
        *(Acknowledgment(id=f"{pack}-{rule}", reason=reason) for pack in _PACKS for rule in rules)
    )


def as_cdk_nag_writes(stack: Stack, arn: str) -> str:
    """Return an ARN with ``<name>`` for each reference, as cdk-nag has it in the ids of its findings."""
    resolved = stack.resolve(arn)
    parts = [resolved] if isinstance(resolved, str) else resolved["Fn::Join"][1]
    return "".join(part if isinstance(part, str) else f"<{part['Ref']}>" for part in parts)

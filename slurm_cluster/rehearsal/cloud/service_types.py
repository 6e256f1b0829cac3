"""What ministack leaves out of the CloudFormation types of other services than EC2.

https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/ (aws-resource-secretsmanager-secret,
aws-resource-route53-hostedzone, aws-resource-iam-instanceprofile)
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Mapping
from typing import Any

from slurm_cluster.rehearsal.cloud.emulator import Emulator, boolean
from slurm_cluster.rehearsal.cloud.resource_types import Properties, Reference, refuse_unsupported

_SECRET = "AWS::SecretsManager::Secret"  # noqa: S105  # a type
_GENERATE = frozenset(
    {
        *("ExcludeCharacters", "ExcludeLowercase", "ExcludeNumbers", "ExcludePunctuation", "ExcludeUppercase"),
        *("IncludeSpace", "PasswordLength", "RequireEachIncludedType"),
    }
)


def generated_secret(properties: Properties, before: Properties | None) -> Properties:
    """Return a secret's properties with the value that GenerateSecretString asks for; it stays while that does.

    Raises:
        ValueError: it asks for what is not rehearsed, or for more kinds of characters than its length has room for.
    """
    wanted = properties.get("GenerateSecretString")
    if wanted is None or (before is not None and before.get("GenerateSecretString") == wanted):
        return properties
    refuse_unsupported(f"{_SECRET} GenerateSecretString", wanted, _GENERATE)
    excluded = set(wanted.get("ExcludeCharacters", ""))
    kinds = [
        kept
        for name, characters in (
            ("ExcludeLowercase", string.ascii_lowercase),
            ("ExcludeUppercase", string.ascii_uppercase),
            ("ExcludeNumbers", string.digits),
            ("ExcludePunctuation", string.punctuation),
        )
        if not boolean(wanted.get(name)) and (kept := [item for item in characters if item not in excluded])
    ]
    if boolean(wanted.get("IncludeSpace")):
        kinds.append([" "])
    length = int(wanted.get("PasswordLength", 32))
    one_of_each = boolean(wanted.get("RequireEachIncludedType", True))
    if not kinds or (one_of_each and len(kinds) > length):
        raise ValueError(f"{_SECRET}: no password of {length} characters is possible with {wanted}")
    value = [secrets.choice(kind) for kind in kinds] if one_of_each else []
    every = [character for kind in kinds for character in kind]
    value += [secrets.choice(every) for _ in range(length - len(value))]
    secrets.SystemRandom().shuffle(value)
    rest = {name: item for name, item in properties.items() if name != "GenerateSecretString"}
    return {**rest, "SecretString": "".join(value)}


def _secret_arn(emulator: Emulator, physical_id: str, attributes: Mapping[str, Any]) -> str:
    del emulator, physical_id
    return str(attributes["Id"])


def _secret_name(emulator: Emulator, arn: str) -> str:
    del emulator
    return arn.partition(":secret:")[2].rpartition("-")[0]


SECRET_REFERENCE = Reference(outward=_secret_arn, inward=_secret_name)
"""Ref of a secret is its ARN; ministack's physical id is its name."""


def _profile_name(emulator: Emulator, physical_id: str, attributes: Mapping[str, Any]) -> str:
    del emulator, attributes
    return physical_id.rpartition("/")[2]


def _profile_arn(emulator: Emulator, name: str) -> str:
    profile = emulator.profile(name)
    return profile.arn if profile else name


PROFILE_REFERENCE = Reference(outward=_profile_name, inward=_profile_arn)
"""Ref of an instance profile is its name; ministack's physical id is its ARN."""


def make_private(emulator: Emulator, zone_id: str, properties: Properties) -> None:
    """Make a hosted zone with VPCs private to them, as Route 53 does."""
    emulator.hosted_zones[zone_id] |= {
        "private": bool(properties.get("VPCs")),
        "vpcs": [{"VPCId": vpc["VPCId"], "VPCRegion": vpc["VPCRegion"]} for vpc in properties.get("VPCs") or []],
    }

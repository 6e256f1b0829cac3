"""The emulated EC2's requests, answers, property refusals and comparison, without any process."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from slurm_cluster.rehearsal.cloud import instance_types, verify
from slurm_cluster.rehearsal.cloud.compute_types import COMPUTE_TYPES
from slurm_cluster.rehearsal.cloud.emulator import ApiError, flat, nested, tree, xml
from slurm_cluster.rehearsal.cloud.existing_types import EXISTING_TYPES
from slurm_cluster.rehearsal.cloud.network_types import NETWORK_TYPES
from slurm_cluster.rehearsal.cloud.resource_types import refuse_unsupported, unsupported_properties
from slurm_cluster.rehearsal.cloud.service_types import generated_secret


def test_query_parameters_become_a_tree_and_back() -> None:
    query = {
        "BlockDeviceMapping.1.DeviceName": "/dev/xvda",
        "BlockDeviceMapping.1.Ebs.VolumeSize": "16",
        "InstanceId.10": "i-10",
        "InstanceId.2": "i-2",
        "MetadataOptions.HttpTokens": "required",
    }
    assert nested(query) == {
        "BlockDeviceMapping": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": "16"}}],
        "InstanceId": ["i-2", "i-10"],
        "MetadataOptions": {"HttpTokens": "required"},
    }
    assert nested(flat({"A": [{"B": True, "C": None}, {"B": 2}]})) == {"A": [{"B": "true"}, {"B": "2"}]}


def test_answers_survive_xml() -> None:
    answer = {"volumeSet": [{"volumeId": "vol-1", "encrypted": True, "note": "a < b & c"}], "nextToken": None}
    read = tree(ElementTree.fromstring(f"<answer>{xml(answer)}</answer>"))  # noqa: S314  # made here
    assert read == {"volumeSet": [{"volumeId": "vol-1", "encrypted": "true", "note": "a < b & c"}]}


def test_properties_that_would_be_ignored_are_refused_by_name() -> None:
    supported = COMPUTE_TYPES["AWS::EC2::Instance"].properties
    good = {"ImageId": "ami-1", "Tags": [{"Key": "a", "Value": "b"}], "MetadataOptions": {"HttpTokens": "required"}}
    assert unsupported_properties(good, supported) == []
    bad = {**good, "HibernationOptions": {"Configured": True}, "BlockDeviceMappings": [{"NoDevice": {}, "X": 1}]}
    with pytest.raises(ValueError, match=r"BlockDeviceMappings\.X, HibernationOptions\.Configured is not rehearsed"):
        refuse_unsupported("AWS::EC2::Instance", bad, supported)


def test_every_rehearsed_type_is_compared_with_the_api_or_says_why_not() -> None:
    rehearsed = {*COMPUTE_TYPES, *NETWORK_TYPES, *EXISTING_TYPES} - {"AWS::CloudFormation::CustomResource"}
    assert rehearsed == set(verify.READERS) | set(verify.NOT_COMPARED)
    assert not set(verify.READERS) & set(verify.NOT_COMPARED)


@pytest.mark.parametrize(
    ("declared", "reported", "paths"),
    [
        ({"Encrypted": True, "Size": "50"}, {"Encrypted": True, "Size": 50, "Iops": 3000}, []),
        ({"Encrypted": True}, {"Encrypted": False}, ["Encrypted"]),
        ({"Encrypted": True}, {}, ["Encrypted"]),
        (
            {"MetadataOptions": {"HttpTokens": "required"}},
            {"MetadataOptions": {"HttpTokens": "optional"}},
            ["MetadataOptions.HttpTokens"],
        ),
        (
            {"Tags": [{"Key": "a", "Value": "1"}]},
            {"Tags": [{"Key": "b", "Value": "2"}, {"Key": "a", "Value": "1"}]},
            [],
        ),
        ({"Tags": [{"Key": "a", "Value": "1"}]}, {"Tags": [{"Key": "a", "Value": "2"}]}, ["Tags"]),
        ({"SecurityGroupIds": ["sg-1"]}, {"SecurityGroupIds": ["sg-1", "sg-2"]}, ["SecurityGroupIds"]),
        ({"SecurityGroupIds": ["sg-1", "sg-2"]}, {"SecurityGroupIds": ["sg-2", "sg-1"]}, []),
        ({"PolicyDocument": {"Statement": []}}, {"PolicyDocument": {"Statement": [{}]}}, ["PolicyDocument"]),
    ],
)
def test_declared_properties_are_compared(declared: Any, reported: Any, paths: list[str]) -> None:
    def difference(path: str, declared: Any, reported: Any) -> verify.Difference:
        return verify.Difference(resource_type="T", physical_id="id", path=path, declared=declared, reported=reported)

    assert [found.path for found in verify.compare(declared, reported, "", difference)] == paths


@pytest.mark.parametrize(
    ("name", "vcpus", "cores", "threads", "memory"),
    [
        ("c7i.large", 2, 1, 2, 4096),
        ("m7a.xlarge", 4, 4, 1, 16384),
        ("t3.medium", 2, 1, 2, 4096),
        ("t4g.small", 2, 2, 1, 2048),
        ("r7g.4xlarge", 16, 16, 1, 131072),
    ],
)
def test_instance_types_have_their_real_facts(name: str, vcpus: int, cores: int, threads: int, memory: int) -> None:
    facts = instance_types.find(name)
    assert (facts.vcpus, facts.cores, facts.threads_per_core, facts.memory_mib) == (vcpus, cores, threads, memory)


def test_an_unknown_instance_type_is_an_error() -> None:
    with pytest.raises(ApiError, match=r"'p5\.48xlarge' is not rehearsed; use one of .*c7i.* in a size up to 4xlarge"):
        instance_types.find("p5.48xlarge")


def test_a_generated_secret_is_as_asked_and_stays_while_the_question_does() -> None:
    asked = {"GenerateSecretString": {"ExcludePunctuation": True, "PasswordLength": 128}}
    value = generated_secret(asked, None)["SecretString"]
    assert len(value) == 128
    assert value.isalnum()
    assert generated_secret(asked, None)["SecretString"] != value
    assert generated_secret({**asked, "Description": "new"}, asked) == {**asked, "Description": "new"}
    with pytest.raises(ValueError, match="SecretStringTemplate is not rehearsed"):
        generated_secret({"GenerateSecretString": {"SecretStringTemplate": "{}"}}, None)

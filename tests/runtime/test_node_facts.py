"""EC2's description of instance types against what Slurm is told."""

from __future__ import annotations

from typing import Any

import boto3
import botocore.exceptions
import pytest
from botocore.stub import Stubber
from hypothesis import given
from hypothesis import strategies as st

from slurm_cluster.runtime.node import facts
from slurm_cluster.runtime.node.facts import Gpus


def description(name: str, **more: Any) -> dict[str, Any]:
    return {
        "InstanceType": name,
        "VCpuInfo": {"DefaultVCpus": 8, "DefaultCores": 4, "DefaultThreadsPerCore": 2},
        "MemoryInfo": {"SizeInMiB": 16384},
        **more,
    }


def test_cores_and_threads_are_ec2s() -> None:
    found = facts.from_description(description("c7i.2xlarge"))
    assert (found.cores, found.threads_per_core, found.cpus, found.gpus) == (4, 2, 8, None)


def test_a_type_without_threads_has_one_core_a_vcpu() -> None:
    found = facts.from_description(description("mac.x", VCpuInfo={"DefaultVCpus": 12}))
    assert (found.cores, found.threads_per_core) == (12, 1)


@pytest.mark.parametrize(
    ("nominal", "seen"),
    # MemTotal that Linux showed on instances of that size, in MiB (lessons of other projects and EC2 listings)
    [(512, 460), (1024, 950), (2048, 1910), (4096, 3835), (8192, 7780), (65536, 63622), (196608, 189000)],
)
def test_real_memory_is_below_what_a_node_registers_and_not_far_below(nominal: int, seen: int) -> None:
    assert facts.memory_for_jobs(nominal) <= seen
    assert facts.memory_for_jobs(nominal) >= seen * 0.77


@given(st.integers(1, 40_000_000))
def test_memory_is_a_positive_whole_number_below_the_nominal_one(nominal: int) -> None:
    assert 1 <= facts.memory_for_jobs(nominal) <= max(1, nominal - 1)


def test_nvidia_gpus_are_counted_and_others_are_not() -> None:
    t4 = {"Name": "T4", "Manufacturer": "NVIDIA", "Count": 4}
    amd = {"Name": "Radeon Pro V520", "Manufacturer": "AMD", "Count": 1}
    assert facts.from_description(description("g4dn", GpuInfo={"Gpus": [t4]})).gpus == Gpus(type="t4", count=4)
    assert facts.from_description(description("g4ad", GpuInfo={"Gpus": [amd]})).gpus is None
    odd = {"Name": "RTX PRO Server 6000", "Manufacturer": "NVIDIA", "Count": 2}
    assert facts.from_description(description("g7e", GpuInfo={"Gpus": [odd]})).gpus == Gpus(
        type="rtx_pro_server_6000", count=2
    )


def test_types_are_asked_for_once_each() -> None:
    ec2 = boto3.client("ec2", region_name="eu-central-1", aws_access_key_id="x", aws_secret_access_key="x")  # noqa: S106
    with Stubber(ec2) as stub:
        stub.add_response(
            "describe_instance_types",
            {"InstanceTypes": [description("a.large"), description("b.large")]},
            {"InstanceTypes": ["a.large", "b.large"]},
        )
        assert set(facts.describe(ec2, ["b.large", "a.large", "b.large"])) == {"a.large", "b.large"}
        stub.assert_no_pending_responses()


def test_no_partition_asks_nothing() -> None:
    ec2 = boto3.client("ec2", region_name="eu-central-1", aws_access_key_id="x", aws_secret_access_key="x")  # noqa: S106
    with Stubber(ec2):
        assert facts.describe(ec2, []) == {}


def test_an_unknown_type_is_named() -> None:
    ec2 = boto3.client("ec2", region_name="eu-central-1", aws_access_key_id="x", aws_secret_access_key="x")  # noqa: S106
    with Stubber(ec2) as stub:
        stub.add_client_error(
            "describe_instance_types", "InvalidInstanceType", "The following supplied instance types do not exist: [q]"
        )
        with pytest.raises(botocore.exceptions.ClientError, match=r"\[q\]"):
            facts.describe(ec2, ["q"])
        stub.add_response("describe_instance_types", {"InstanceTypes": []})
        with pytest.raises(ValueError, match=r"no instance type q\.large .* choose another"):
            facts.describe(ec2, ["q.large"])

"""Specs survive their JSON form, and a form of another release is refused."""

from __future__ import annotations

import json

import pytest

from slurm_cluster.model.flows import PortRange, SlurmPorts
from slurm_cluster.model.spec import BundleSpec, ClusterSpec, PartitionSpec

CLUSTER = ClusterSpec(
    cluster_id="guid-12345678",
    cluster_name="slurm",
    head_host="head.12345678.guid.slurm.internal",
    munge_key_secret_arn="arn:aws:secretsmanager:eu-west-1:111122223333:secret:MungeKey-abc",  # noqa: S106
    state_volume_id="vol-0123456789abcdef0",
    job_user="admin",
    job_credentials=False,
    ports=SlurmPorts(srun=PortRange(61000, 63999)),
)
PARTITION = PartitionSpec(name="cpu", instance_type="c7i.large", static_nodes=2, default=True)
BUNDLE = BundleSpec(bucket="assets", key="0123.zip")
PARAMETER_LIMIT = 4096


@pytest.mark.parametrize("spec", [CLUSTER, PARTITION, BUNDLE])
def test_json_form_is_read_back(spec: ClusterSpec | PartitionSpec | BundleSpec) -> None:
    assert type(spec).from_json(spec.to_json()) == spec
    assert len(spec.to_json()) < PARAMETER_LIMIT / 4


@pytest.mark.parametrize("spec", [CLUSTER, PARTITION, BUNDLE])
def test_missing_and_unknown_fields_are_refused(spec: ClusterSpec | PartitionSpec | BundleSpec) -> None:
    value = json.loads(spec.to_json())
    field = min(value)
    for wrong in ({**value, "colour": "red"}, {key: value[key] for key in value if key != field}, [value], None):
        with pytest.raises(ValueError, match=f"{type(spec).__name__} has .* expected exactly"):
            type(spec).from_json(json.dumps(wrong))

"""What is not allowed is a ValueError that says what was given, what is allowed and what to change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aws_cdk as cdk
import botocore.loaders
import pytest
from aws_cdk import aws_ec2 as ec2

from slurm_cluster import OperatingSystem, PinnedImage, PortRange, SlurmCluster
from slurm_cluster.operating_system import architecture, instance_type_problem

NewApp = Callable[..., cdk.App]
C7I = ec2.InstanceType("c7i.large")


@pytest.fixture(scope="module")
def stack(new_app: NewApp) -> cdk.Stack:
    return cdk.Stack(new_app(), "Stack")


@pytest.fixture(scope="module")
def cluster(stack: cdk.Stack) -> SlurmCluster:
    return SlurmCluster(stack, "Cluster")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"availability_zones": ["a", "b", "c", "d"]}, "availability_zones names 4 zones: name 1 to 3"),
        ({"availability_zones": ["a", "a"]}, "availability_zones must differ, a occurs more than once"),
        ({"availability_zones": "eu-west-1a"}, "availability_zones is 'eu-west-1a': give a list"),
        ({"availability_zones": [1]}, r"availability_zones is \[1\]: give a list"),
        ({"head_generation": "2"}, "generation of the head node is '2': give a whole number, 1 or more"),
        ({"head_generation": True}, "generation of the head node is True"),
        ({"image_generation": 1.5}, "image_generation is 1.5: give a whole number"),
        ({"cluster_name": 5}, "cluster name 5 is not allowed"),
        ({"default_partition": 5}, "partition name 5 is not allowed"),
        ({"state_volume_size": cdk.Size.gibibytes(0)}, "state_volume_size is 0 GiB: give whole GiB from 1 to 65536"),
        ({"state_volume_size": cdk.Size.gibibytes(65537)}, "state_volume_size is 65537 GiB"),
        ({"state_volume_size": cdk.Size.mebibytes(1536)}, "state_volume_size is 1.5 GiB: give whole GiB"),
        ({"state_volume_size": 50}, "state_volume_size is 50: give a size such as"),
        ({"srun_ports": "61000-63999"}, "srun_ports is '61000-63999': give a range such as"),
        ({"head_instance_type": "t3.medium"}, "'t3.medium' is not an ec2.InstanceType"),
        ({"head_instance_type": ec2.InstanceType("foo.bar")}, "instance type 'foo.bar' is not allowed"),
        ({"head_instance_type": ec2.InstanceType("t3.mediun")}, r"head node: .* did you mean t3\.medium\?"),
        # "false" would count as yes
        ({"job_credentials": "false"}, "job_credentials is 'false': give True or False"),
        ({"operating_system": "debian"}, "operating_system is 'debian': give one such as"),
        ({"vpc": "vpc-1"}, "vpc is 'vpc-1': give a VPC"),
        ({"subnet": "subnet-1"}, "subnet is 'subnet-1': give a subnet"),
    ],
)
def test_options_of_a_cluster(options: dict[str, Any], message: str, stack: cdk.Stack) -> None:
    with pytest.raises(ValueError, match=message):
        SlurmCluster(stack, "Bad", **options)
    assert stack.node.try_find_child("Bad") is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partition_name": 5}, "partition name 5 is not allowed"),
        ({"partition_name": "cpü"}, "partition name 'cpü' is not allowed"),
        ({"partition_name": "cpu\n"}, "is not allowed"),
        ({"partition_name": "c" * 26}, "use 1 to 25 lower-case letters"),
        ({"static_nodes": "2"}, "static_nodes of partition 'cpu' is '2': give a whole number, 1 to 500"),
        ({"static_nodes": True}, "static_nodes of partition 'cpu' is True"),
        ({"static_nodes": -1}, "static_nodes of partition 'cpu' is -1"),
        # made one by one, these would be instances for hours before CDK counted them
        ({"static_nodes": 10**9}, "is 1000000000: give a whole number, 1 to 500"),
        ({"root_volume_size": cdk.Size.gibibytes(7)}, "root_volume_size is 7 GiB: give whole GiB from 8 to 65536"),
        ({"root_volume_size": cdk.Size.mebibytes(8200)}, "give whole GiB"),
        ({"root_volume_size": 16}, "root_volume_size is 16: give a size"),
        ({"instance_type": "c7i.large"}, "'c7i.large' is not an ec2.InstanceType"),
    ],
)
def test_options_of_a_partition(options: dict[str, Any], message: str, cluster: SlurmCluster) -> None:
    given = {"partition_name": "cpu", "instance_type": C7I, "static_nodes": 1, **options}
    with pytest.raises(ValueError, match=message):
        cluster.add_partition(given.pop("partition_name"), **given)
    assert cluster.foundation.partition_names == ()


def test_tokens_where_the_value_is_needed_now(stack: cdk.Stack, cluster: SlurmCluster) -> None:
    number = cdk.CfnParameter(stack, "Number", type="Number", default=20).value_as_number
    with pytest.raises(ValueError, match="static_nodes of partition 'cpu' is a token"):
        cluster.add_partition("cpu", instance_type=C7I, static_nodes=number)  # type: ignore[arg-type]  # a float
    with pytest.raises(ValueError, match="root_volume_size is a token"):
        cluster.add_partition("cpu", instance_type=C7I, static_nodes=1, root_volume_size=cdk.Size.gibibytes(number))
    with pytest.raises(ValueError, match="state_volume_size is a token"):
        SlurmCluster(stack, "Bad", state_volume_size=cdk.Size.gibibytes(number))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"amd64": "ami-1"}, "amd64 is 'ami-1': give a machine image"),
        ({"job_user": "a b"}, "job_user is 'a b': give the name"),
        ({"job_user": ""}, "job_user is ''"),
        ({"root_device": "xvda"}, "root_device is 'xvda': give the image's root device, such as /dev/xvda"),
        ({"narrows_srun_ports": "no"}, "narrows_srun_ports is 'no': give True or False"),
    ],
)
def test_options_of_an_operating_system(options: dict[str, Any], message: str) -> None:
    image = ec2.MachineImage.generic_linux({"eu-west-1": "ami-0123456789abcdef0"})
    with pytest.raises(ValueError, match=message):
        OperatingSystem.of(**{"job_user": "admin", "amd64": image, **options})


@pytest.mark.parametrize(("first", "last"), [("1", "2"), (1.5, 3), (True, 5), (-1, 5), (5, 65536), (6, 5)])
def test_port_ranges(first: Any, last: Any) -> None:
    with pytest.raises(ValueError, match="give two ports from 0 to 65535"):
        PortRange(first, last)


@pytest.mark.parametrize(
    ("name", "generation", "message"),
    [
        ("/my/image", 1, "parameter_name is '/my/image': give a public SSM parameter"),
        ("/aws/service/debian/release/13/latest/amd64", 0, "generation is 0"),
    ],
)
def test_options_of_a_pinned_image(name: str, generation: int, message: str, stack: cdk.Stack) -> None:
    with pytest.raises(ValueError, match=message):
        PinnedImage(stack, "Image", parameter_name=name, generation=generation)


def test_subnet_without_a_known_zone(stack: cdk.Stack) -> None:
    vpc = ec2.Vpc.from_vpc_attributes(stack, "Imported", vpc_id="vpc-1", availability_zones=["eu-west-1a"])
    subnet = ec2.Subnet.from_subnet_id(stack, "Subnet", "subnet-1")
    with pytest.raises(ValueError, match=r"import the subnet by .* with availability_zone"):
        SlurmCluster(stack, "Bad", vpc=vpc, subnet=subnet)


def test_vpc_without_dns(stack: cdk.Stack) -> None:
    vpc = ec2.Vpc(stack, "Nameless", enable_dns_hostnames=False, restrict_default_security_group=False)
    with pytest.raises(ValueError, match="define it with enable_dns_hostnames=True"):
        SlurmCluster(stack, "Bad", vpc=vpc)


def test_every_type_of_ec2_is_taken_and_has_the_architecture_that_cdk_says() -> None:
    model = botocore.loaders.create_loader().load_service_model("ec2", "service-2")
    families = {name.split(".")[0]: name for name in model["shapes"]["InstanceType"]["enum"]}
    assert len(families) > 150
    by_cdk = {ec2.InstanceArchitecture.X86_64: "amd64", ec2.InstanceArchitecture.ARM_64: "arm64"}
    unknown_to_cdk = set()
    for family, name in families.items():
        assert instance_type_problem(name) is None, name
        try:
            expected = by_cdk[ec2.InstanceType(name).architecture]
        except RuntimeError:
            unknown_to_cdk.add(family)
            continue
        assert architecture(name) == expected, name
    assert {architecture(families[name]) for name in ("p6-b200", "u-6tb1", "u7i-12tb")} == {"amd64"}
    assert architecture(families["p6e-gb200"]) == "arm64"
    assert {"p6-b200", "u-6tb1", "p6e-gb200"} <= unknown_to_cdk


@pytest.mark.parametrize("key", ["Cost Center", "team/name", "été", ".", "_index"])
def test_tag_keys_that_instance_metadata_cannot_show(key: str, new_app: NewApp) -> None:
    app = new_app()
    stack = cdk.Stack(app, "Stack")
    SlurmCluster(stack, "Cluster", vpc=_vpc(stack))
    cdk.Tags.of(app).add(key, "value")
    with pytest.raises(RuntimeError, match=f"tag key '{key}' reaches the cluster's instances"):
        app.synth()


def test_tags_of_a_stack_and_of_workers_elsewhere_are_looked_at_too(new_app: NewApp) -> None:
    app = new_app()
    stack = cdk.Stack(app, "Stack", tags={"Cost Center": "1"})
    cluster = SlurmCluster(stack, "Cluster", vpc=_vpc(stack))
    partition = cluster.add_partition("cpu", instance_type=C7I, static_nodes=1)
    cdk.Tags.of(partition).add("long", "x" * 257)
    for number in range(48):
        cdk.Tags.of(partition).add(f"tag{number}", "")
    with pytest.raises(RuntimeError, match="tag key 'Cost Center'") as caught:
        app.synth()
    assert "tag 'long' of Stack/Cluster/cpu/cpu-static-1 has 257 characters: use up to 256" in str(caught.value)
    assert "Stack/Cluster/cpu/cpu-static-1 has 54 tags: use up to 50" in str(caught.value)


def test_tag_that_is_kept_off_instances_is_fine(new_app: NewApp) -> None:
    app = new_app()
    stack = cdk.Stack(app, "Stack")
    SlurmCluster(stack, "Cluster", vpc=_vpc(stack))
    cdk.Tags.of(app).add("Cost Center", "1", exclude_resource_types=["AWS::EC2::Instance", "aws:cdk:stack"])
    app.synth()


def _vpc(stack: cdk.Stack) -> ec2.IVpc:
    return ec2.Vpc.from_vpc_attributes(
        stack,
        "Vpc",
        vpc_id="vpc-0123456789abcdef0",
        availability_zones=["eu-west-1a"],
        private_subnet_ids=["subnet-0123456789abcdef0"],
        private_subnet_route_table_ids=["rtb-0123456789abcdef0"],
    )

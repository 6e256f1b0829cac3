"""The EC2 instance of a node, head or worker."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from aws_cdk import Acknowledgment, Size, Stack, Tags, Token, Validations
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct, IDependable

from slurm_cluster import user_data
from slurm_cluster.cluster_registry import register_node
from slurm_cluster.model.flows import Role
from slurm_cluster.model.node_files import CLUSTER_TAG, NODE_TAG, ROLE_TAG
from slurm_cluster.options import size_problem

if TYPE_CHECKING:
    from slurm_cluster.foundation import ClusterFoundation

_ROOT_GIB = 16
_LEAST_ROOT_GIB = 8
"""Size of the snapshot in the images of Debian and Ubuntu; a volume cannot be smaller than its snapshot."""
_TAG_KEY = re.compile(r"[a-zA-Z0-9+=.,_:@-]{1,128}")
_TAG_KEYS_OF_THE_METADATA = (".", "..", "_index")
_LONGEST_TAG_VALUE = 256
_MOST_TAGS = 50


def root_volume_problem(size: Size | None) -> str | None:
    """Return what is wrong with the size of a root volume, or None."""
    return size_problem("root_volume_size", size, least=_LEAST_ROOT_GIB)


def define_node_instance(
    scope: Construct,
    construct_id: str,
    *,
    foundation: ClusterFoundation,
    role: Role,
    node_name: str | None,
    instance_type: ec2.InstanceType,
    instance_profile: iam.IInstanceProfile,
    security_group: ec2.ISecurityGroup,
    root_volume_size: Size | None,
    needs: Sequence[IDependable],
) -> ec2.Instance:
    """Define an instance that becomes a node of the cluster: its user data, tags, metadata options and root volume.

    Args:
        scope: parent construct.
        construct_id: id in the parent.
        foundation: the cluster.
        role: what the node is to Slurm.
        node_name: Slurm's name of a worker; None for the head.
        instance_type: EC2 instance type.
        instance_profile: profile with the node's role.
        security_group: the role's group.
        root_volume_size: size of the root volume; 16 GiB by default.
        needs: what the node asks for at its first boot.
    """
    network = foundation.network
    system = foundation.operating_system
    instance = ec2.Instance(
        scope,
        construct_id,
        vpc=network.vpc,
        vpc_subnets=ec2.SubnetSelection(subnets=[network.subnet]),
        instance_type=instance_type,
        machine_image=foundation.image(instance_type),
        instance_profile=instance_profile,
        security_group=security_group,
        # frozen text: what may change is read from the parameters, because a change here would stop the instance
        user_data=ec2.UserData.custom(
            user_data.render(parameter_path=foundation.desired_state.path, role=role, node_name=node_name)
        ),
        user_data_causes_replacement=False,
        http_endpoint=True,
        http_tokens=ec2.HttpTokens.REQUIRED,
        http_put_response_hop_limit=1,
        instance_metadata_tags=True,
        detailed_monitoring=True,
        block_devices=[
            ec2.BlockDevice(
                device_name=system.root_device,
                volume=ec2.BlockDeviceVolume.ebs(
                    _ROOT_GIB if root_volume_size is None else root_volume_size.to_gibibytes(),
                    encrypted=True,
                    volume_type=ec2.EbsDeviceVolumeType.GP3,
                    delete_on_termination=True,
                ),
            )
        ],
        propagate_tags_to_volume_on_creation=True,
    )
    # the subnet says it already; a second statement could only contradict
    instance.instance.availability_zone = None
    instance.node.add_dependency(network.reachable, *needs)
    tags = Tags.of(instance)
    tags.add(CLUSTER_TAG, foundation.cluster_id)
    tags.add(ROLE_TAG, role.value)
    if node_name is not None:
        tags.add(NODE_TAG, node_name)
    Validations.of(instance).acknowledge(
        Acknowledgment(
            id="AwsSolutions-EC29",
            reason="Termination protection would stop CloudFormation itself from replacing or deleting the node; "
            "the head's state is on a volume of its own that is retained.",
        )
    )
    foundation.instances.append(instance)
    register_node(foundation.security, instance, role=role)
    return instance


def tag_problems(instances: Sequence[ec2.Instance]) -> list[str]:
    """Return which tags, their stacks' own included, would make EC2 refuse the launch of ``instances``.

    Keys of tags that instances see in their metadata are restricted further than keys elsewhere:
    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/work-with-tags-in-IMDS.html. The other limits:
    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Tags.html#tag-restrictions
    """
    problems: dict[str, None] = {}
    stacks: dict[str, Mapping[str, str]] = {}
    for instance in instances:
        stack = Stack.of(instance)
        path = stack.node.path
        if path not in stacks:
            stacks[path] = stack.tags.tag_values()
        tags = {**stacks[path], **instance.instance.tags.tag_values()}
        for key, value in tags.items():
            if not _TAG_KEY.fullmatch(key) or key in _TAG_KEYS_OF_THE_METADATA:
                problems[
                    f"tag key {key!r} reaches the cluster's instances, which see their tags in their metadata, so that "
                    "EC2 would refuse to launch them: use letters, digits and + - = . , _ : @ only, or keep the tag "
                    "off with exclude_resource_types=['AWS::EC2::Instance', 'aws:cdk:stack']"
                ] = None
            if len(value) > _LONGEST_TAG_VALUE and not Token.is_unresolved(value):
                problems[
                    f"tag {key!r} of {instance.node.path} has {len(value)} characters: use up to {_LONGEST_TAG_VALUE}"
                ] = None
        if len(tags) > _MOST_TAGS:
            problems[f"{instance.node.path} has {len(tags)} tags: use up to {_MOST_TAGS}"] = None
    return list(problems)

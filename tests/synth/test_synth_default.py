"""The default cluster: ids that deployed stacks depend on, the whole template, and what must never be in it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.json import JSONSnapshotExtension

Template = dict[str, Any]
Resources = Callable[[Template, str], dict[str, Any]]

LOGICAL_IDS = {
    "ClusterNetworkVpcC6C4EC94": "AWS::EC2::VPC",
    "ClusterNetworkVpcPublicSubnet1SubnetE0367463": "AWS::EC2::Subnet",
    "ClusterNetworkVpcPublicSubnet1RouteTableE75E7C51": "AWS::EC2::RouteTable",
    "ClusterNetworkVpcPublicSubnet1RouteTableAssociation25A445F6": "AWS::EC2::SubnetRouteTableAssociation",
    "ClusterNetworkVpcPublicSubnet1DefaultRouteAA81336D": "AWS::EC2::Route",
    "ClusterNetworkVpcPublicSubnet1EIPDD663FB4": "AWS::EC2::EIP",
    "ClusterNetworkVpcPublicSubnet1NATGatewayECB15AB6": "AWS::EC2::NatGateway",
    "ClusterNetworkVpcPublicSubnet2Subnet3868AD9D": "AWS::EC2::Subnet",
    "ClusterNetworkVpcPublicSubnet2RouteTable1D28E21A": "AWS::EC2::RouteTable",
    "ClusterNetworkVpcPublicSubnet2RouteTableAssociationFB0FE8C4": "AWS::EC2::SubnetRouteTableAssociation",
    "ClusterNetworkVpcPublicSubnet2DefaultRoute779D09E7": "AWS::EC2::Route",
    "ClusterNetworkVpcNodesSubnet1Subnet8BDE2205": "AWS::EC2::Subnet",
    "ClusterNetworkVpcNodesSubnet1RouteTableA3D6D23F": "AWS::EC2::RouteTable",
    "ClusterNetworkVpcNodesSubnet1RouteTableAssociation5C75476D": "AWS::EC2::SubnetRouteTableAssociation",
    "ClusterNetworkVpcNodesSubnet1DefaultRouteECF5C4C0": "AWS::EC2::Route",
    "ClusterNetworkVpcNodesSubnet2SubnetE0233CE4": "AWS::EC2::Subnet",
    "ClusterNetworkVpcNodesSubnet2RouteTable99C4D1A6": "AWS::EC2::RouteTable",
    "ClusterNetworkVpcNodesSubnet2RouteTableAssociation5823172C": "AWS::EC2::SubnetRouteTableAssociation",
    "ClusterNetworkVpcNodesSubnet2DefaultRouteB6E6600F": "AWS::EC2::Route",
    "ClusterNetworkVpcIGW1EB8D5C0": "AWS::EC2::InternetGateway",
    "ClusterNetworkVpcVPCGW04EF0C0F": "AWS::EC2::VPCGatewayAttachment",
    "ClusterNetworkVpcRefusedIAMRole40AA3B5F": "AWS::IAM::Role",
    "ClusterNetworkVpcRefusedIAMRoleDefaultPolicy35592105": "AWS::IAM::Policy",
    "ClusterNetworkVpcRefusedFlowLog3425E45E": "AWS::EC2::FlowLog",
    "ClusterNetworkVpcS3D69DC1CA": "AWS::EC2::VPCEndpoint",
    "ClusterNetworkRefusedTraffic5882F1CD": "AWS::Logs::LogGroup",
    "ClusterFoundationSecurityHeadGroup62A9AE19": "AWS::EC2::SecurityGroup",
    "ClusterFoundationSecurityWorkerGroupD0F30D20": "AWS::EC2::SecurityGroup",
    "ClusterFoundationSecurityControllerRpc954748B0": "AWS::EC2::SecurityGroupIngress",
    "ClusterFoundationSecuritySrunIo15EAE7A0": "AWS::EC2::SecurityGroupIngress",
    "ClusterFoundationSecurityNodeRpc8B789301": "AWS::EC2::SecurityGroupIngress",
    "ClusterFoundationSecurityControllerToSrunInJob9D551FF0": "AWS::EC2::SecurityGroupIngress",
    "ClusterFoundationSecurityMessageTree4F45FA3C": "AWS::EC2::SecurityGroupIngress",
    "ClusterFoundationMungeKeyD41330B8": "AWS::SecretsManager::Secret",
    "ClusterFoundationDesiredStateSharedBundleE2F0BA92": "AWS::SSM::Parameter",
    "ClusterFoundationDesiredStateSharedCluster7115FE5F": "AWS::SSM::Parameter",
    "ClusterFoundationDesiredStatePartitionscpu394C31E3": "AWS::SSM::Parameter",
    "ClusterFoundationWorkerAccessRole29D12701": "AWS::IAM::Role",
    "ClusterFoundationWorkerAccessProfile38017278": "AWS::IAM::InstanceProfile",
    "ClusterFoundationImagesamd64C1493BEB": "Custom::SlurmClusterPinnedImage",
    "ClusterHeadNodeStateVolume2C37373F": "AWS::EC2::Volume",
    "ClusterHeadNodeZoneE0429CB6": "AWS::Route53::HostedZone",
    "ClusterHeadNodeAccessRoleB3FEAA12": "AWS::IAM::Role",
    "ClusterHeadNodeAccessProfile925FAFDD": "AWS::IAM::InstanceProfile",
    "ClusterHeadNodeInstance727D399C": "AWS::EC2::Instance",
    "ClusterHeadNodeRecordC1017FF4": "AWS::Route53::RecordSet",
    "Clustercpucpustatic1985E71EE": "AWS::EC2::Instance",
    "Clustercpucpustatic23CAB5FC3": "AWS::EC2::Instance",
    "ClusterSmokeTestLog8BF9DFE7": "AWS::Logs::LogGroup",
    "ClusterSmokeTestRole6CCA6371": "AWS::IAM::Role",
    "ClusterSmokeTestFunction465772B4": "AWS::Lambda::Function",
    "ClusterSmokeTestAnswererBD8BC009": "AWS::Lambda::Function",
    "ClusterSmokeTestInvoke549CD0C5": "AWS::IAM::Policy",
    "ClusterSmokeTestOnDeathBD3B2B36": "AWS::Lambda::EventInvokeConfig",
    "ClusterSmokeTest0AC3CBEF": "Custom::SlurmSmokeTest",
    "SlurmClusterPinnedImageProviderLog8A3BD37A": "AWS::Logs::LogGroup",
    "SlurmClusterPinnedImageProviderRoleADE942A3": "AWS::IAM::Role",
    "SlurmClusterPinnedImageProviderFunctionD2BE9850": "AWS::Lambda::Function",
}
"""A changed id is a resource that CloudFormation deletes and makes anew: a breaking release, said in the CHANGELOG."""


def test_logical_ids_of_the_default_cluster(default_template: Template) -> None:
    assert {name: item["Type"] for name, item in default_template["Resources"].items()} == LOGICAL_IDS


def test_default_template(
    default_template: Template, without_hashes: Callable[[Any], Any], snapshot: SnapshotAssertion
) -> None:
    normalised = json.loads(json.dumps(without_hashes(default_template)))
    for item in normalised["Resources"].values():
        item.get("Properties", {}).pop("UserData", None)  # pinned by a test of its own
    assert normalised == snapshot(extension_class=JSONSnapshotExtension)


def test_no_physical_names(default_template: Template) -> None:
    named = {
        (name, key)
        for name, item in default_template["Resources"].items()
        for key in item.get("Properties", {})
        if key in {"RoleName", "GroupName", "FunctionName", "InstanceProfileName", "PolicyName", "BucketName"}
        # the name of a policy is that inside the role, a configuration's that of its function
        and item["Type"] not in {"AWS::IAM::Policy", "AWS::Lambda::EventInvokeConfig"}
    }
    assert named == set()
    # parameters and the zone have names, with the stack's own in them
    for item in default_template["Resources"].values():
        if item["Type"] in {"AWS::SSM::Parameter", "AWS::Route53::HostedZone", "AWS::Route53::RecordSet"}:
            assert re.search(r"AWS::StackName|AWS::StackId", json.dumps(item["Properties"]["Name"]))


def test_no_partition_and_no_domain_is_written_out(default_template: Template) -> None:
    text = json.dumps({key: value for key, value in default_template.items() if key != "Rules"})
    assert "arn:aws" not in text
    # service principals are called so in every partition; the last is the name of S3's endpoint service
    assert set(re.findall(r"[\w.-]*amazonaws[\w.]*", text)) == {
        "ec2.amazonaws.com",
        "lambda.amazonaws.com",
        "vpc-flow-logs.amazonaws.com",
        "com.amazonaws.",
    }


def test_metadata_service_volumes_and_monitoring_of_every_node(
    default_template: Template, resources: Resources
) -> None:
    instances = resources(default_template, "AWS::EC2::Instance")
    assert len(instances) == 3
    for item in instances.values():
        properties = item["Properties"]
        assert properties["MetadataOptions"] == {
            "HttpEndpoint": "enabled",
            "HttpPutResponseHopLimit": 1,
            "HttpTokens": "required",
            "InstanceMetadataTags": "enabled",
        }
        assert properties["BlockDeviceMappings"] == [
            {
                "DeviceName": "/dev/xvda",
                "Ebs": {"DeleteOnTermination": True, "Encrypted": True, "VolumeSize": 16, "VolumeType": "gp3"},
            }
        ]
        assert "KeyName" not in properties
        assert "DisableApiTermination" not in properties


def test_state_volume_outlives_head_and_stack(default_template: Template, resources: Resources) -> None:
    (volume,) = resources(default_template, "AWS::EC2::Volume").values()
    assert volume["DeletionPolicy"] == "RetainExceptOnCreate"
    assert volume["UpdateReplacePolicy"] == "Retain"
    assert volume["Properties"]["Encrypted"] is True
    assert volume["Properties"]["VolumeType"] == "gp3"
    assert resources(default_template, "AWS::EC2::VolumeAttachment") == {}


def test_head_volume_and_workers_are_in_one_zone(default_template: Template, resources: Resources) -> None:
    instances = resources(default_template, "AWS::EC2::Instance").values()
    (volume,) = resources(default_template, "AWS::EC2::Volume").values()
    (subnet,) = {item["Properties"]["SubnetId"]["Ref"] for item in instances}
    zone = default_template["Resources"][subnet]["Properties"]["AvailabilityZone"]
    assert volume["Properties"]["AvailabilityZone"] == zone
    assert all("AvailabilityZone" not in item["Properties"] for item in instances)


def test_first_boot_finds_parameters_permissions_and_a_way_out(
    default_template: Template, resources: Resources
) -> None:
    parameters = resources(default_template, "AWS::SSM::Parameter")
    shared = {name for name in parameters if "Shared" in name}
    ways_out = {
        name
        for name in resources(default_template, "AWS::EC2::Route")
        if name.startswith("ClusterNetworkVpcNodesSubnet1")
    } | set(resources(default_template, "AWS::EC2::VPCEndpoint"))
    assert len(shared) == 2
    assert len(ways_out) == 2
    for name, item in resources(default_template, "AWS::EC2::Instance").items():
        needs = set(parameters) if "HeadNode" in name else shared
        assert needs | ways_out <= set(item["DependsOn"])
        assert any(needed.endswith("Role") or "AccessRole" in needed for needed in item["DependsOn"])


def test_workers_ask_for_the_head_only_once_it_has_a_record(default_template: Template, resources: Resources) -> None:
    # Route 53's SOA lets the VPC's resolver keep "no such name" for 15 minutes
    (record,) = resources(default_template, "AWS::Route53::RecordSet")
    workers = [item for name, item in resources(default_template, "AWS::EC2::Instance").items() if "cpu" in name]
    assert len(workers) == 2
    assert all(record in item["DependsOn"] for item in workers)


def test_head_comes_after_the_parameters_of_all_its_partitions(
    default_template: Template, resources: Resources
) -> None:
    (head,) = (item for name, item in resources(default_template, "AWS::EC2::Instance").items() if "HeadNode" in name)
    partitions = {name for name in resources(default_template, "AWS::SSM::Parameter") if "Partitions" in name}
    assert partitions
    assert partitions <= set(head["DependsOn"])

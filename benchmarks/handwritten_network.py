"""The network of the handwritten app: VPC, subnets, NAT gateway, flow log, security groups."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

VPC_PATH = "SlurmCluster/Cluster/Network/Vpc"
ANYWHERE = "0.0.0.0/0"


def name_tag(*parts: str) -> list[cdk.CfnTag]:
    return [cdk.CfnTag(key="Name", value="/".join([VPC_PATH, *parts]))]


class Network:
    """Everything that the nodes stand on."""

    def __init__(self, scope: Construct) -> None:
        self.scope = scope
        self.vpc = ec2.CfnVPC(
            scope,
            "Vpc",
            cidr_block="10.0.0.0/16",
            enable_dns_hostnames=True,
            enable_dns_support=True,
            instance_tenancy="default",
            tags=name_tag(),
        )
        self.zones = [cdk.Fn.select(number, cdk.Fn.get_azs()) for number in (0, 1)]
        self.tables: list[ec2.CfnRouteTable] = []
        gateway = ec2.CfnInternetGateway(scope, "InternetGateway", tags=name_tag())
        attachment = ec2.CfnVPCGatewayAttachment(
            scope, "GatewayAttachment", internet_gateway_id=gateway.ref, vpc_id=self.vpc.ref
        )
        public = []
        for number, block in enumerate(("10.0.0.0/24", "10.0.1.0/24")):
            subnet, table, association = self.subnet("Public", "Public", number, block)
            route = ec2.CfnRoute(
                scope,
                f"Public{number}Route",
                route_table_id=table.ref,
                destination_cidr_block=ANYWHERE,
                gateway_id=gateway.ref,
            )
            route.add_resource_dependency(attachment)
            public.append((subnet, association, route))
        subnet, association, route = public[0]
        address = ec2.CfnEIP(scope, "NatAddress", domain="vpc", tags=name_tag("PublicSubnet1"))
        nat = ec2.CfnNatGateway(
            scope,
            "Nat",
            allocation_id=address.attr_allocation_id,
            subnet_id=subnet.ref,
            tags=name_tag("PublicSubnet1"),
        )
        nat.add_resource_dependency(route)
        nat.add_resource_dependency(association)
        private = []
        for number, block in enumerate(("10.0.64.0/18", "10.0.128.0/18")):
            subnet, table, association = self.subnet("Nodes", "Private", number, block)
            route = ec2.CfnRoute(
                scope,
                f"Nodes{number}Route",
                route_table_id=table.ref,
                destination_cidr_block=ANYWHERE,
                nat_gateway_id=nat.ref,
            )
            private.append((subnet, association, route))
        endpoint = ec2.CfnVPCEndpoint(
            scope,
            "S3",
            vpc_id=self.vpc.ref,
            vpc_endpoint_type="Gateway",
            service_name=f"com.amazonaws.{cdk.Aws.REGION}.s3",
            route_table_ids=[table.ref for table in (*self.tables[2:], *self.tables[:2])],
            tags=name_tag(),
        )
        self.node_subnet, association, route = private[0]
        self.way_out: list[cdk.CfnResource] = [association, route, endpoint]
        self.refused_traffic = self.flow_log()
        self.head_group = self.group("Head", "Slurm head node")
        self.worker_group = self.group("Worker", "Slurm worker nodes")
        self.rules = self.declare_rules()

    def subnet(
        self, name: str, kind: str, number: int, block: str
    ) -> tuple[ec2.CfnSubnet, ec2.CfnRouteTable, ec2.CfnSubnetRouteTableAssociation]:
        path = f"{name}Subnet{number + 1}"
        subnet = ec2.CfnSubnet(
            self.scope,
            f"{name}{number}",
            vpc_id=self.vpc.ref,
            availability_zone=self.zones[number],
            cidr_block=block,
            map_public_ip_on_launch=False,
            tags=[
                cdk.CfnTag(key="aws-cdk:subnet-name", value=name),
                cdk.CfnTag(key="aws-cdk:subnet-type", value=kind),
                *name_tag(path),
            ],
        )
        table = ec2.CfnRouteTable(self.scope, f"{name}{number}Table", vpc_id=self.vpc.ref, tags=name_tag(path))
        association = ec2.CfnSubnetRouteTableAssociation(
            self.scope, f"{name}{number}Association", route_table_id=table.ref, subnet_id=subnet.ref
        )
        self.tables.append(table)
        return subnet, table, association

    def flow_log(self) -> logs.CfnLogGroup:
        log = logs.CfnLogGroup(self.scope, "RefusedTraffic", retention_in_days=30)
        log.apply_removal_policy(cdk.RemovalPolicy.DESTROY)
        statement = {
            "Action": "sts:AssumeRole",
            "Effect": "Allow",
            "Principal": {"Service": "vpc-flow-logs.amazonaws.com"},
        }
        role = iam.CfnRole(
            self.scope,
            "FlowLogRole",
            assume_role_policy_document={"Statement": [statement], "Version": "2012-10-17"},
            tags=name_tag("Refused"),
        )
        iam.CfnPolicy(
            self.scope,
            "FlowLogPolicy",
            policy_name="FlowLogPolicy",
            roles=[role.ref],
            policy_document={
                "Statement": [
                    {
                        "Action": ["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"],
                        "Effect": "Allow",
                        "Resource": log.attr_arn,
                    }
                ],
                "Version": "2012-10-17",
            },
        )
        ec2.CfnFlowLog(
            self.scope,
            "FlowLog",
            resource_id=self.vpc.ref,
            resource_type="VPC",
            traffic_type="REJECT",
            deliver_logs_permission_arn=role.attr_arn,
            log_destination_type="cloud-watch-logs",
            log_group_name=log.ref,
            tags=name_tag("Refused"),
        )
        return log

    def group(self, name: str, description: str) -> ec2.CfnSecurityGroup:
        return ec2.CfnSecurityGroup(
            self.scope,
            f"{name}Group",
            vpc_id=self.vpc.ref,
            group_description=description,
            security_group_egress=[
                ec2.CfnSecurityGroup.EgressProperty(
                    cidr_ip=ANYWHERE, description="Allow all outbound traffic by default", ip_protocol="-1"
                )
            ],
        )

    def declare_rules(self) -> list[ec2.CfnSecurityGroupIngress]:
        head, worker = self.head_group, self.worker_group
        table = (
            (
                "ControllerRpc", worker, head, 6817, 6817,
                "controller-rpc: node registration, configuration fetch, job completion, "
                "every Slurm command on a worker",
            ),
            (
                "SrunIo", worker, head, 1024, 65535,
                "srun-io: task I/O, launch and exit messages, terminal and PMI of an srun on the head",
            ),
            (
                "NodeRpc", head, worker, 6818, 6818,
                "node-rpc: ping, launch, signal and termination of jobs and steps",
            ),
            (
                "ControllerToSrun", head, worker, 1024, 65535,
                "controller-to-srun-in-job: allocation grant, step wake-up and time-out "
                "to an srun or salloc inside a job",
            ),
            (
                "Workers", worker, worker, 0, 65535,
                "message-tree: fan-out beyond TreeWidth nodes, launch by an srun inside a job, step completion; "
                "srun-io-in-job: the same for an srun inside a job, which listens on a worker; "
                "mpi: MPI, PMIx direct connections, and the rendezvous of distributed training",
            ),
        )  # fmt: skip
        return [
            ec2.CfnSecurityGroupIngress(
                self.scope,
                name,
                group_id=listener.attr_group_id,
                source_security_group_id=opener.attr_group_id,
                ip_protocol="tcp",
                from_port=first,
                to_port=last,
                description=description,
            )
            for name, opener, listener, first, last, description in table
        ]

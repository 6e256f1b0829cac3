"""What the proof of a template with 50 partitions costs, in CPU time.

The floor of the same run is json.loads of the same template, to which the ratio is given. The template is already read,
as it is where ``SlurmReachability`` proves it at synthesis.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from slurm_cluster.reachability import Status, load, prove

PARTITIONS = 50
LIMIT_SECONDS = 0.1
RUNS = 20


def template(partitions: int) -> dict[str, Any]:
    """Return a cluster as this package's constructs make it: two static workers in each partition."""
    resources: dict[str, Any] = {
        "Vpc": _resource("EC2::VPC", CidrBlock="10.0.0.0/16"),
        "Subnet": _resource("EC2::Subnet", VpcId={"Ref": "Vpc"}, CidrBlock="10.0.0.0/20"),
        "Head": _instance("HeadGroup", "head"),
    }
    for name in ("HeadGroup", "WorkerGroup"):
        everything = {"CidrIp": "0.0.0.0/0", "IpProtocol": "-1"}
        resources[name] = _resource(
            "EC2::SecurityGroup", GroupDescription=name, VpcId={"Ref": "Vpc"}, SecurityGroupEgress=[everything]
        )
    for number, (listener, opener, first, last) in enumerate(
        (
            ("HeadGroup", "WorkerGroup", 6817, 6817),
            ("HeadGroup", "WorkerGroup", 1024, 65535),
            ("WorkerGroup", "HeadGroup", 6818, 6818),
            ("WorkerGroup", "HeadGroup", 1024, 65535),
            ("WorkerGroup", "WorkerGroup", 0, 65535),
        )
    ):
        resources[f"Rule{number}"] = _resource(
            "EC2::SecurityGroupIngress",
            GroupId={"Fn::GetAtt": [listener, "GroupId"]},
            SourceSecurityGroupId={"Fn::GetAtt": [opener, "GroupId"]},
            IpProtocol="tcp",
            FromPort=first,
            ToPort=last,
        )
    for partition in range(partitions):
        resources[f"Parameter{partition}"] = _resource("SSM::Parameter", Type="String", Value=f"partition {partition}")
        for node in (1, 2):
            resources[f"Node{partition}x{node}"] = _instance("WorkerGroup", "worker")
    return {"Resources": resources}


def _instance(group: str, role: str) -> dict[str, Any]:
    script = "#!/bin/bash\n" + "set -euo pipefail\n" * 150
    return _resource(
        "EC2::Instance",
        SubnetId={"Ref": "Subnet"},
        SecurityGroupIds=[{"Fn::GetAtt": [group, "GroupId"]}],
        Tags=[{"Key": "slurm-cluster:role", "Value": role}],
        UserData={"Fn::Base64": {"Fn::Join": ["", [script, {"Ref": "AWS::StackName"}]]}},
    )


def _resource(kind: str, **properties: Any) -> dict[str, Any]:
    return {"Type": f"AWS::{kind}", "Properties": properties}


def least(work: Callable[[], object], runs: int) -> float:
    """Return the least CPU time of several runs, after a first one that fills caches."""
    work()
    times = []
    for _ in range(runs):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def main() -> int:
    """Print the times and their ratio; return 1 where the proof takes longer than the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help="measured runs (default: %(default)s)")
    runs = parser.parse_args().runs
    document = template(PARTITIONS)
    text = json.dumps(document)
    proof = prove(load({"cluster.json": document}))
    if [item.status for item in proof.flows] != [Status.OPEN] * len(proof.flows):
        raise AssertionError("the template's flows are not open")
    floor = least(lambda: json.loads(text), runs)
    seconds = least(lambda: prove(load({"cluster.json": document})), runs)
    print(f"{PARTITIONS} partitions, {len(document['Resources'])} resources, {len(text)} bytes")
    print(f"json.loads {floor * 1000:.2f} ms, proof {seconds * 1000:.2f} ms, ratio {seconds / floor:.1f}")
    print(f"limit {LIMIT_SECONDS * 1000:.0f} ms")
    return 0 if seconds <= LIMIT_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())

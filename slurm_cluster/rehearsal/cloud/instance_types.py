"""``DescribeInstanceTypes`` with the real facts of the types that a rehearsal offers.

Source: the specification tables of https://docs.aws.amazon.com/ec2/latest/instancetypes/ (general purpose, compute
optimized, memory optimized), and https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/cpu-options-supported-instances-values.html
for the default CPU cores and threads per core.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from slurm_cluster.rehearsal.cloud.emulator import ApiError, Emulator, refuse_unknown


@dataclass(frozen=True, kw_only=True)
class InstanceType:
    """Facts of one instance type, as EC2 reports them."""

    vcpus: int
    threads_per_core: int
    memory_mib: int
    architecture: str

    @property
    def cores(self) -> int:
        """Number of default CPU cores."""
        return self.vcpus // self.threads_per_core


# architecture, threads per core, memory in GiB per vCPU; for the sizes large to 4xlarge
_FAMILIES = {
    **dict.fromkeys(("m5", "m5a", "m6a", "m6i", "m7i"), ("x86_64", 2, 4)),
    **dict.fromkeys(("c5a", "c6a", "c6i", "c7i"), ("x86_64", 2, 2)),
    **dict.fromkeys(("r5", "r5a", "r6a", "r6i", "r7i"), ("x86_64", 2, 8)),
    **{family: ("x86_64", 1, ratio) for family, ratio in (("m7a", 4), ("c7a", 2), ("r7a", 8))},
    **dict.fromkeys(("m6g", "m7g", "m8g"), ("arm64", 1, 4)),
    **dict.fromkeys(("c6g", "c7g", "c8g"), ("arm64", 1, 2)),
    **dict.fromkeys(("r6g", "r7g", "r8g"), ("arm64", 1, 8)),
}
_SIZES = {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16}

# vCPUs and memory in GiB
_BURSTABLE = {
    "micro": (2, 1),
    "small": (2, 2),
    "medium": (2, 4),
    "large": (2, 8),
    "xlarge": (4, 16),
    "2xlarge": (8, 32),
}

INSTANCE_TYPES: dict[str, InstanceType] = {
    **{
        f"{family}.{size}": InstanceType(
            vcpus=vcpus, threads_per_core=threads, memory_mib=vcpus * ratio * 1024, architecture=architecture
        )
        for family, (architecture, threads, ratio) in _FAMILIES.items()
        for size, vcpus in _SIZES.items()
    },
    **{
        f"{family}.{size}": InstanceType(
            vcpus=vcpus, threads_per_core=threads, memory_mib=memory * 1024, architecture=architecture
        )
        for family, architecture, threads in (("t3", "x86_64", 2), ("t3a", "x86_64", 2), ("t4g", "arm64", 1))
        for size, (vcpus, memory) in _BURSTABLE.items()
    },
}


def find(name: str) -> InstanceType:
    """Return the facts of an instance type.

    Raises:
        ApiError: the rehearsal does not know it.
    """
    if name not in INSTANCE_TYPES:
        families = sorted({known.partition(".")[0] for known in INSTANCE_TYPES})
        raise ApiError(
            "InvalidInstanceType",
            f"The instance type '{name}' is not rehearsed; use one of {', '.join(families)} in a size up to 4xlarge",
        )
    return INSTANCE_TYPES[name]


def describe_instance_types(_: Emulator, request: dict[str, Any]) -> dict[str, Any]:
    """EC2's ``DescribeInstanceTypes``, by name."""
    refuse_unknown("DescribeInstanceTypes", request, {"InstanceType", "MaxResults"})
    names = request.get("InstanceType") or sorted(INSTANCE_TYPES)
    return {"instanceTypeSet": [_wire(name, find(name)) for name in names]}


def _wire(name: str, facts: InstanceType) -> dict[str, Any]:
    return {
        "instanceType": name,
        "currentGeneration": True,
        "bareMetal": False,
        "hypervisor": "nitro",
        "supportedUsageClasses": ["on-demand", "spot"],
        "supportedRootDeviceTypes": ["ebs"],
        "supportedVirtualizationTypes": ["hvm"],
        "processorInfo": {"supportedArchitectures": [facts.architecture]},
        "vCpuInfo": {
            "defaultVCpus": facts.vcpus,
            "defaultCores": facts.cores,
            "defaultThreadsPerCore": facts.threads_per_core,
        },
        "memoryInfo": {"sizeInMiB": facts.memory_mib},
        "instanceStorageSupported": False,
        "burstablePerformanceSupported": name.startswith("t"),
    }

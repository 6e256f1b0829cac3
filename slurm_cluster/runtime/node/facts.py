"""Hardware of an EC2 instance type as Slurm must be told it, from ec2:DescribeInstanceTypes.

Nothing here is a table of ours: what EC2 says today is what slurm.conf says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from types_boto3_ec2 import EC2Client
    from types_boto3_ec2.literals import InstanceTypeType
    from types_boto3_ec2.type_defs import InstanceTypeInfoTypeDef

_MEMORY_SHARE = 0.95
_MEMORY_FIXED_MIB = 128
_TYPES_PER_CALL = 100


@dataclass(frozen=True, kw_only=True)
class Gpus:
    """GPUs of one instance.

    Args:
        type: GRES type, e.g. ``a100``.
        count: number of GPUs.
    """

    type: str
    count: int


@dataclass(frozen=True, kw_only=True)
class InstanceFacts:
    """What one instance type offers to jobs.

    Args:
        instance_type: EC2 instance type.
        cores: physical cores.
        threads_per_core: hardware threads of one core; 1 on Graviton.
        memory_mib: memory for jobs in MiB, see ``memory_for_jobs``.
        gpus: NVIDIA GPUs, or None.
    """

    instance_type: str
    cores: int
    threads_per_core: int
    memory_mib: int
    gpus: Gpus | None = None

    @property
    def cpus(self) -> int:
        """Logical CPUs, EC2's vCPUs."""
        return self.cores * self.threads_per_core


def memory_for_jobs(nominal_mib: int) -> int:
    """Return the RealMemory of an instance with ``nominal_mib`` MiB, rounded down.

    A node that registers with less than slurm.conf says is marked invalid, and Linux never sees all of what EC2
    names: firmware and kernel keep up to 3% on big instances and about 100 MiB on small ones. 5% and 128 MiB less
    is below what every size was seen to register.
    """
    return max(1, int(nominal_mib * _MEMORY_SHARE) - _MEMORY_FIXED_MIB)


def from_description(info: InstanceTypeInfoTypeDef | Mapping[str, Any]) -> InstanceFacts:
    """Return the facts in one item of DescribeInstanceTypes."""
    cpu = info["VCpuInfo"]
    # Types without multithreading may leave out cores and threads: then each vCPU is a core.
    cores = cpu.get("DefaultCores") or cpu["DefaultVCpus"]
    threads = cpu.get("DefaultThreadsPerCore") or 1
    return InstanceFacts(
        instance_type=info["InstanceType"],
        cores=cores,
        threads_per_core=threads,
        memory_mib=memory_for_jobs(info["MemoryInfo"]["SizeInMiB"]),
        gpus=_gpus(info.get("GpuInfo", {}).get("Gpus", [])),
    )


def _gpus(items: Iterable[Mapping[str, Any]]) -> Gpus | None:
    """Return the NVIDIA GPUs; other makers' devices have no fixed file names that gres.conf could give."""
    nvidia = [item for item in items if item.get("Manufacturer", "").upper() == "NVIDIA"]
    if not nvidia:
        return None
    name = re.sub(r"[^a-z0-9]+", "_", nvidia[0].get("Name", "gpu").lower()).strip("_")
    return Gpus(type=name or "gpu", count=sum(item["Count"] for item in nvidia))


def describe(ec2: EC2Client, instance_types: Iterable[str]) -> dict[str, InstanceFacts]:
    """Ask EC2 for the facts of ``instance_types``.

    Raises:
        ValueError: the answer lacks one of them.
        botocore.exceptions.ClientError: EC2 does not know one of them; its message names it.
    """
    wanted = sorted(set(instance_types))
    found: dict[str, InstanceFacts] = {}
    for start in range(0, len(wanted), _TYPES_PER_CALL):
        batch = cast("list[InstanceTypeType]", wanted[start : start + _TYPES_PER_CALL])
        for info in ec2.describe_instance_types(InstanceTypes=batch)["InstanceTypes"]:
            found[info["InstanceType"]] = from_description(info)
    missing = [name for name in wanted if name not in found]
    if missing:
        raise ValueError(
            f"EC2 describes no instance type {', '.join(missing)} in this Region: choose another for its partition"
        )
    return found

"""OperatingSystem: which image nodes boot from, and what differs between distributions."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from aws_cdk import Token
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from slurm_cluster.image import PinnedImage
from slurm_cluster.options import kind_problem

_INSTANCE_TYPE = re.compile(r"[a-z]+(-[a-z]*)?[0-9][a-z0-9-]*\.(?P<size>[a-z0-9-]+)")
_NAMED_SIZES = ("nano", "micro", "small", "medium", "large", "xlarge", "metal")
_COUNTED_SIZES = ("{}xlarge", "metal-{}xl")
"""https://docs.aws.amazon.com/ec2/latest/instancetypes/instance-type-names.html. Families come and go, sizes rarely."""

_ARM64_TYPE = re.compile(r"a1\.|[a-z]+[0-9]+g|[a-z]+[0-9]+[a-z]*-gb[0-9]")
"""Graviton has a ``g`` behind the generation, NVIDIA's Grace is in the ``-gb`` of its GPU, and a1 came before both.

https://docs.aws.amazon.com/ec2/latest/instancetypes/instance-type-names.html. CDK's own ``InstanceType.architecture``
raises an error for types such as p6-b200 and u7i-12tb.
"""


_USER_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_DEVICE = re.compile(r"/dev/[a-z0-9]+")


def instance_type_problem(name: object) -> str | None:
    """Return what is wrong with ``name`` as an EC2 instance type, or None.

    Its form and its size are checked; whether the family exists is known to EC2 alone.
    """
    if Token.is_unresolved(name):
        return (
            "the instance type is a token, so its architecture and image cannot be told: "
            "give a literal type such as c7i.large"
        )
    match = _INSTANCE_TYPE.fullmatch(name.lower()) if isinstance(name, str) else None
    if match is None:
        return f"instance type {name!r} is not allowed: give an EC2 instance type such as c7i.large"
    given = match["size"]
    sizes = _sizes_like(given)
    if given not in sizes:
        near = difflib.get_close_matches(given, sizes, n=1)
        advice = f"did you mean {match[0].removesuffix(given)}{near[0]}?" if near else "give one such as c7i.large;"
        known = ", ".join((*_NAMED_SIZES, *(size.format("<n>") for size in _COUNTED_SIZES)))
        return f"instance type {name!r} is not allowed: {given!r} is no size; {advice} sizes are {known}"
    if name != match[0]:
        return f"instance type {name!r} is not allowed: EC2 writes types in lower case; did you mean {match[0]}?"
    return None


def _sizes_like(size: str) -> tuple[str, ...]:
    """Return the named sizes, and the counted ones with the number that is in ``size``."""
    count = re.search("[1-9][0-9]*", size)
    return (*_NAMED_SIZES, *(form.format(count[0]) for form in _COUNTED_SIZES if count))


def architecture(instance_type: str) -> str:
    """Return Debian's name of the architecture of an EC2 instance type."""
    return "arm64" if _ARM64_TYPE.match(instance_type) else "amd64"


@dataclass(frozen=True, kw_only=True)
class OperatingSystem:
    """A distribution whose packages of Slurm the nodes install; build one with the class methods.

    Args:
        name: name in messages and documents.
        job_user: the image's default user, uid 1000, as whom jobs run.
        root_device: device name of the image's root volume.
        narrows_srun_ports: whether its Slurm keeps all of srun's listeners inside SrunPortRange (since 24.05.1).
        public_parameter: public SSM parameter with the newest image, ``{architecture}`` in it; None for own images.
        images: own images by architecture.
    """

    name: str
    job_user: str
    root_device: str
    narrows_srun_ports: bool
    public_parameter: str | None = None
    images: Mapping[str, ec2.IMachineImage] = field(default_factory=dict)

    @classmethod
    def debian_13(cls) -> OperatingSystem:
        """Debian 13 (trixie) with Slurm 24.11; the default, and what the rehearsal boots.

        Images: https://wiki.debian.org/Cloud/AmazonEC2Image
        """
        return cls(
            name="debian-13",
            job_user="admin",
            root_device="/dev/xvda",
            narrows_srun_ports=True,
            public_parameter="/aws/service/debian/release/13/latest/{architecture}",
        )

    @classmethod
    def ubuntu_24_04(cls) -> OperatingSystem:
        """Ubuntu 24.04 LTS with Slurm 23.11. Not rehearsed.

        Images: https://documentation.ubuntu.com/aws/aws-how-to/instances/find-ubuntu-images/
        """
        return cls._ubuntu("24.04", narrows_srun_ports=False)

    @classmethod
    def ubuntu_26_04(cls) -> OperatingSystem:
        """Ubuntu 26.04 LTS with Slurm 25.11. Not rehearsed.

        Images: https://documentation.ubuntu.com/aws/aws-how-to/instances/find-ubuntu-images/
        """
        return cls._ubuntu("26.04", narrows_srun_ports=True)

    @classmethod
    def of(
        cls,
        *,
        job_user: str,
        amd64: ec2.IMachineImage | None = None,
        arm64: ec2.IMachineImage | None = None,
        root_device: str = "/dev/xvda",
        narrows_srun_ports: bool = False,
    ) -> OperatingSystem:
        """Images of your own, made from Debian 13, Ubuntu 24.04 or Ubuntu 26.04 or newer. Not rehearsed.

        An image that changes replaces the nodes, the head among them: pass a fixed AMI id, not a "latest" parameter.

        Args:
            job_user: the image's default user, uid 1000, as whom jobs run.
            amd64: image for x86_64 instance types; without it, such types are refused.
            arm64: image for Graviton instance types; without it, such types are refused.
            root_device: device name of the image's root volume; ``/dev/xvda`` by default, ``/dev/sda1`` on Ubuntu.
            narrows_srun_ports: whether its Slurm is 24.05.1 or newer, so that srun_ports may be narrowed; no by
                default.

        Raises:
            ValueError: neither image was given, or an option is not allowed.
        """
        images = {name: image for name, image in (("amd64", amd64), ("arm64", arm64)) if image is not None}
        problems = [
            f"{name} is {image!r}: give a machine image such as ec2.MachineImage.generic_linux({{...}})"
            for name, image in images.items()
            if not hasattr(image, "get_image")
        ]
        if not images:
            problems.append("OperatingSystem.of got no image: pass amd64=, arm64= or both")
        if not isinstance(job_user, str) or not _USER_NAME.fullmatch(job_user):
            problems.append(f"job_user is {job_user!r}: give the name of the image's default user, such as admin")
        if not isinstance(root_device, str) or not _DEVICE.fullmatch(root_device):
            problems.append(f"root_device is {root_device!r}: give the image's root device, such as /dev/xvda")
        if problem := kind_problem("narrows_srun_ports", narrows_srun_ports, bool, "True or False"):
            problems.append(problem)
        if problems:
            raise ValueError("; ".join(problems))
        return cls(
            name="custom",
            job_user=job_user,
            root_device=root_device,
            narrows_srun_ports=narrows_srun_ports,
            images=images,
        )

    @classmethod
    def _ubuntu(cls, release: str, *, narrows_srun_ports: bool) -> OperatingSystem:
        return cls(
            name=f"ubuntu-{release}",
            job_user="ubuntu",
            root_device="/dev/sda1",
            narrows_srun_ports=narrows_srun_ports,
            public_parameter=(
                f"/aws/service/canonical/ubuntu/server/{release}/stable/current/{{architecture}}/hvm/ebs-gp3/ami-id"
            ),
        )

    def instance_type_problem(self, instance_type: ec2.InstanceType) -> str | None:
        """Return why nodes of this system cannot run on ``instance_type``, or None."""
        if not isinstance(instance_type, ec2.InstanceType):
            return f"instance type {instance_type!r} is not an ec2.InstanceType: give ec2.InstanceType('c7i.large')"
        name = instance_type.to_string()
        if problem := instance_type_problem(name):
            return problem
        if self.public_parameter is None and architecture(name) not in self.images:
            return (
                f"instance type {name!r} is {architecture(name)} and there is no image for it: pass "
                f"{architecture(name)}= to OperatingSystem.of, or choose a type of {' or '.join(sorted(self.images))}"
            )
        return None

    def image(self, scope: Construct, instance_type: ec2.InstanceType, *, generation: int) -> ec2.IMachineImage:
        """Return the image for ``instance_type``; those of one architecture share one that is defined in ``scope``.

        Args:
            scope: construct that holds the images of a cluster.
            instance_type: a type for which ``instance_type_problem`` found none.
            generation: see PinnedImage.
        """
        name = architecture(instance_type.to_string())
        if self.public_parameter is None:
            return self.images[name]
        existing = scope.node.try_find_child(name)
        if isinstance(existing, PinnedImage):
            return existing
        return PinnedImage(
            scope,
            name,
            parameter_name=self.public_parameter.format(architecture=name),
            generation=generation,
        )

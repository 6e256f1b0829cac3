"""The AMIs of the emulated region and the public parameters that name them.

https://wiki.debian.org/Cloud/AmazonEC2Image/Trixie
https://documentation.ubuntu.com/aws/aws-how-to/instances/find-ubuntu-images/
"""

from __future__ import annotations

from slurm_cluster.rehearsal.cloud.emulator import Emulator

_ARCHITECTURES = {"amd64": "x86_64", "arm64": "arm64"}
_DEBIAN_OWNER, _CANONICAL_OWNER = "136693071363", "099720109477"

DEBIAN_13 = {"amd64": "ami-0debd13a000000001", "arm64": "ami-0debd13a000000002"}
"""The images that the rehearsal's baked image stands for."""

_UBUNTU = {
    "24.04": {"amd64": "ami-0bb24040000000001", "arm64": "ami-0bb24040000000002"},
    "26.04": {"amd64": "ami-0bb26040000000001", "arm64": "ami-0bb26040000000002"},
}


def seed(emulator: Emulator) -> None:
    """Register the images and their public parameters."""
    for architecture, image_id in DEBIAN_13.items():
        _register(emulator, image_id, f"debian-13-{architecture}", architecture, _DEBIAN_OWNER, "/dev/xvda")
        emulator.public_parameters[f"/aws/service/debian/release/13/latest/{architecture}"] = image_id
    for release, images in _UBUNTU.items():
        for architecture, image_id in images.items():
            name = f"ubuntu/images/hvm-ssd-gp3/ubuntu-{release}-{architecture}-server"
            _register(emulator, image_id, name, architecture, _CANONICAL_OWNER, "/dev/sda1")
            path = f"/aws/service/canonical/ubuntu/server/{release}/stable/current/{architecture}/hvm/ebs-gp3/ami-id"
            emulator.public_parameters[path] = image_id


def _register(emulator: Emulator, image_id: str, name: str, architecture: str, owner: str, root: str) -> None:
    emulator.images[image_id] = {
        "ImageId": image_id,
        "Name": name,
        "ImageLocation": f"{owner}/{name}",
        "Description": name,
        "Architecture": _ARCHITECTURES[architecture],
        "RootDeviceType": "ebs",
        "RootDeviceName": root,
        "BlockDeviceMappings": [],
        "VirtualizationType": "hvm",
        "CreationDate": "2025-08-09T00:00:00.000Z",
        "OwnerId": owner,
        "LaunchPermissions": [{"Group": "all"}],
    }

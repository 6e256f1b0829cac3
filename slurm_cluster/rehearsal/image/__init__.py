"""The disk image that rehearsal nodes start from."""

from slurm_cluster.rehearsal.image.build import ImageError, ensure_baked_image
from slurm_cluster.rehearsal.image.recipe import REPLACED

__all__ = ["REPLACED", "ImageError", "ensure_baked_image"]

"""The disk image that rehearsal nodes start from."""

from slurm_cluster.rehearsal.image.build import ImageError, ensure_baked_image
from slurm_cluster.rehearsal.image.recipe import replaced

__all__ = ["ImageError", "ensure_baked_image", "replaced"]

"""The disk images that rehearsal nodes start from."""

from slurm_cluster.rehearsal.image.build import ImageError, architecture, ensure_baked_image, ensure_stock_image
from slurm_cluster.rehearsal.image.recipe import ImageKind, replaced

__all__ = ["ImageError", "ImageKind", "architecture", "ensure_baked_image", "ensure_stock_image", "replaced"]

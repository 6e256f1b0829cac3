"""Custom resource behind PinnedImage."""

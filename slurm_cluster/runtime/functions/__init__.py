"""Functions behind the custom resources: one folder each, and what all of them share."""

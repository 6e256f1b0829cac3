"""The synthesized cluster on this machine, without an AWS account."""

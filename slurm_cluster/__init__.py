"""AWS CDK v2 constructs for Slurm clusters on EC2."""

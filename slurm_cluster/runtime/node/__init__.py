"""Programs that make an EC2 instance a Slurm node."""

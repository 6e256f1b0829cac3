"""``python -m slurm_cluster.doctor``."""

from slurm_cluster.doctor.command_line import start

if __name__ == "__main__":
    start()

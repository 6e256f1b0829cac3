"""``python -m slurm_cluster.rehearsal``; see ``cli``."""

import sys

from slurm_cluster.rehearsal.cli import main

if __name__ == "__main__":
    sys.exit(main())

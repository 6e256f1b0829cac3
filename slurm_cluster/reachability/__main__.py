"""``python -m slurm_cluster.reachability``, see command_line."""

import sys

from slurm_cluster.reachability.command_line import main

sys.exit(main())

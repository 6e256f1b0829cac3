"""Print the user data of one role, so that shellcheck can read it."""

from __future__ import annotations

import argparse

from slurm_cluster import user_data
from slurm_cluster.model.flows import Role


def main() -> None:
    """Render the user data of the role that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", type=Role, choices=list(Role))
    role: Role = parser.parse_args().role
    node_name = "cpu-static-1" if role is Role.WORKER else None
    print(user_data.render(parameter_path="/slurm-cluster/example/c8", role=role, node_name=node_name))


if __name__ == "__main__":
    main()

"""The first lines of every distributed training, in a two-node job on the rehearsed cluster."""

from __future__ import annotations

import pytest

from tests.rehearsal.cluster_user import ClusterUser
from tests.rehearsal.flow_scenarios import RENDEZVOUS

pytestmark = pytest.mark.rehearsal


def test_ranks_meet_at_the_name_of_the_first_node(cluster: ClusterUser) -> None:
    first, second, _ = cluster.workers
    script = f"""
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) MASTER_PORT=29500
code=$(cat <<'END'
{RENDEZVOUS}
END
)
echo "master $MASTER_ADDR"
srun python3 -c "$code"
"""
    job = cluster.submit(script, "--nodes=2", "--ntasks-per-node=2", f"--nodelist={first.name},{second.name}")
    assert cluster.wait_for_end(job, seconds=60) == "COMPLETED"
    lines = cluster.output(job, first).splitlines()
    assert lines[0] == f"master {first.name}"
    expected = [
        f"rank {rank} of 4 on {node.name} met 0,1,2,3" for rank, node in enumerate((first, first, second, second))
    ]
    assert sorted(lines[1:]) == expected


def test_every_node_of_a_job_is_known_by_name_on_every_other(cluster: ClusterUser) -> None:
    names = [worker.name for worker in cluster.workers]
    look_up = " && ".join(f"getent ahostsv4 {name}" for name in names)
    done = cluster.user(cluster.head, f"srun --nodelist={','.join(names)} sh -c '{look_up}'")
    assert done.returncode == 0, done
    streams = [line.split()[0] for line in done.stdout.splitlines() if "STREAM" in line]
    assert sorted(streams) == sorted(worker.private_ip for worker in cluster.workers for _ in names)

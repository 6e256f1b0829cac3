"""cgroup.conf: what slurmd confines jobs with. Pure: same input, same text."""

from __future__ import annotations

from slurm_cluster.runtime.node.slurm_conf import HEADER

_ROWS = (
    ("CgroupPlugin", "autodetect", "cgroup v2 on every supported image; v1 where a site's image still boots it."),
    ("ConstrainCores", "yes", "A job runs on the cores it was given and on no other."),
    ("ConstrainRAMSpace", "yes", "A job that exceeds its memory is ended, not its neighbours."),
    ("ConstrainDevices", "yes", "A job sees the GPUs it was given and no other."),
)


def render() -> str:
    """Return the text of cgroup.conf."""
    lines = [HEADER, ""]
    for key, value, reason in _ROWS:
        lines += [f"# {reason}", f"{key}={value}"]
    return "\n".join(lines) + "\n"

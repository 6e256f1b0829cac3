"""Paths and tags that node programs, constructs and the rehearsal share."""

from __future__ import annotations

from pathlib import Path

CONFIG_DIR = Path("/etc/slurm-cluster")
"""Holds ``node.json`` (see NodeIdentity) and ``override.d``."""

OVERRIDE_DIR = CONFIG_DIR / "override.d"
"""``<file>.conf`` here is appended to the rendered file of that name, e.g. ``slurm.conf``; for sites.

``ssm-agent-key.asc`` here says who signs the package of the SSM agent.
"""

INSTALL_DIR = Path("/opt/slurm-cluster")
"""Node bundles by key; ``current`` links to the one in use."""

STATE_DIR = Path("/var/lib/slurm-cluster")
"""What a node remembers across reboots."""

SLURMD_SPOOL_DIR = Path("/var/lib/slurm/slurmd")
"""Slurm's own files of a worker: job scripts, credentials, sockets of job steps."""

STATE_VOLUME_DIR = STATE_DIR / "state"
"""Where the head mounts the state volume."""

STATUS_FILE = STATE_DIR / "status.json"
"""Progress and outcome of ``bootstrap`` in this boot, see runtime.node.status."""

COMMAND = Path("/usr/local/sbin/slurm-cluster")
"""Entry point on a node: ``slurm-cluster bootstrap | apply | smoke-test | ...``."""

DOCTOR_COMMAND = Path("/usr/local/sbin/slurm-doctor")
"""Says what is wrong with the cluster, on the head; see slurm_cluster.doctor."""

SSM_AGENT_UNITS = ("amazon-ssm-agent.service", "snap.amazon-ssm-agent.amazon-ssm-agent.service")
"""The SSM agent's, of its package and of its snap."""

FAILURE_PREFIX = "slurm-cluster: FAILED"
"""A failed boot prints ``slurm-cluster: FAILED step=... reason=...`` once to the console."""

READY_LINE = "slurm-cluster: READY"
"""A boot that made a node prints it to the console: what failed before it was overcome."""

CLUSTER_TAG = "slurm-cluster:cluster"
ROLE_TAG = "slurm-cluster:role"
NODE_TAG = "slurm-cluster:node"

"""Flows x network -> proof."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_cluster.model.flows import SlurmPorts
from slurm_cluster.reachability.network import Network
from slurm_cluster.reachability.proof import Proof
from slurm_cluster.reachability.templates import Templates

_SLURM_PORTS = SlurmPorts()


def prove(
    templates: Templates,
    *,
    head: Sequence[str] | None = None,
    workers: Sequence[str] | None = None,
    ports: SlurmPorts = _SLURM_PORTS,
) -> Proof:
    """Prove which of Slurm's flows the templates let through.

    Args:
        templates: see ``load``.
        head: logical ids (or ids, such as sg-0123) of the head node's security groups or of its instance; guessed
            from names, tags and rules where not given.
        workers: the same of the workers: groups, instances, launch templates, auto scaling groups.
        ports: Slurm's ports.

    Raises:
        InputError: head or workers are not in the templates, or cannot be guessed.
    """
    raise NotImplementedError


def prove_network(
    network: Network,
    *,
    head: Sequence[str] | None = None,
    workers: Sequence[str] | None = None,
    ports: SlurmPorts = _SLURM_PORTS,
) -> Proof:
    """The same for a network that was read elsewhere, such as from a live account."""
    raise NotImplementedError

"""For tests of your own stacks: templates without what changes by itself, and clusters that run on this machine.

Installed, it is also a plug-in of pytest, which brings the fixture ``rehearse``.
"""

from slurm_cluster.testing.plugin import Rehearse
from slurm_cluster.testing.template import normalised, synthesize

__all__ = ["Rehearse", "normalised", "synthesize"]

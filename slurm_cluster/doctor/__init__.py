"""``slurm-doctor``: what is wrong with a Slurm cluster, asked on its head, whoever made the cluster.

It needs Python's standard library alone. Evidence is judged by ``runtime.verdict``, as that of the smoke test is; what
differs is how it is gathered: workers are asked by batch jobs, which start where srun does not.
"""

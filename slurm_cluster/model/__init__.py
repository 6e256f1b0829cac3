"""What a cluster is, in plain data: connections, names, and what the nodes are told.

Nothing here imports aws_cdk: the same modules run at synth, on the nodes, in the rehearsal and in the proof.
"""

"""Nodes of the cluster: the registration of this one, and what is told of the others.

`rlmm/manager/node_liveness.py` finds who is silent, and `rlmm/apply/nodes.py` decides from when on
that counts.
"""

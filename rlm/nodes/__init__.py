"""Nodes of the cluster: the registration of this one, and problems with the other nodes.

`rlmm/manager/node_liveness.py` finds nodes that do not answer; `rlmm/apply/nodes.py` decides from
when on that counts.
"""

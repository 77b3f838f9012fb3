"""Settings of the cluster in the metadata log, over those of a node's own file.

Which one wins is one rule, `resolver.py`. What is in force on this node is `in_force.py`;
`follower.py` wakes what waits for a change. `held_back.py` says why nothing of a topic is copied or
deleted now: pauses, the clock, a restart from a snapshot, a move (`move_hold.py`).
"""

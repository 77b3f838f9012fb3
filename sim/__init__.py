"""The seeded world: the shipped code on simulated clocks, networks and disks. Nobody imports it.

`python -m sim --seed N` replays one world, `--plan` says what it is like: `core/` is raft alone,
`nodes/` whole quorum nodes, `tier/` the remote log manager, also of topics that brokers tier.
`python -m sim.explore --scene led` searches small worlds of the core breadth first.
"""

"""The seeded world: the shipped code on simulated clocks, networks and disks. Nobody imports it."""

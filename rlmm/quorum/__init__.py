"""The quorum at work: the pure core (`rlmm/raft`) on a disk, a clock and a network."""

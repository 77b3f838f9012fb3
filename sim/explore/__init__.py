"""The quorum core in all interleavings of small worlds."""

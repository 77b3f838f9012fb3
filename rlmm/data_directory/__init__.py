"""A node's data directory: formatted once, opened by one node, restarted from a snapshot."""

"""A node's data directory: made once, opened by one node, restarted from a snapshot."""

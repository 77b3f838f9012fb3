"""Settings of the cluster in the metadata log, over those of a node's own file."""

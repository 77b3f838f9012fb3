"""Settings of the cluster."""

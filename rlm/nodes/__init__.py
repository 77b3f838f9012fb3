"""Nodes of the cluster: the registration of this one, and what is told of the others."""

"""The read listener: Kafka consumers read a partition's whole history from this node."""

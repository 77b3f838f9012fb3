"""The Kafka protocol between the quorum's nodes, and to clients of its listener."""

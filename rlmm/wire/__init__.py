"""The Kafka protocol on a connection."""

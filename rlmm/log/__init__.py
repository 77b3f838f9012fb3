"""The metadata log on disk, in Kafka's format."""

"""Restores a topic from the tier into Kafka: by producing, or as log directories of a broker."""

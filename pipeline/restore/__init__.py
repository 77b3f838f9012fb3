"""A topic from the tier back into Kafka: by producing, or as log directories of a broker."""

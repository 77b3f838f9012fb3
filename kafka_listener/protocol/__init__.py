"""Kafka's protocol as clients of a read replica speak it: messages in, messages out."""

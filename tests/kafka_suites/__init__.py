"""Kafka's own tests of tiered storage, with the plug-in and a node beside each of their brokers."""

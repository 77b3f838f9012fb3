"""Tests of the Kafka protocol on a connection."""

"""Tests of `kafka_client/`."""

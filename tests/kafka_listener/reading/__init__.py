"""Tests of `kafka_listener/reading/`."""

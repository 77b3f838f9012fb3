"""Tests of `pipeline/spark/`."""

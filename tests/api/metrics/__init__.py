"""Tests of `api/metrics/`."""

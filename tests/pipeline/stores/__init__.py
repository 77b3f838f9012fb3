"""Tests of `pipeline/stores/`."""

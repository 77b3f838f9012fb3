"""Tests of `pipeline/process/`."""

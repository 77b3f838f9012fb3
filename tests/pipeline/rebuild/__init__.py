"""Tests of `pipeline.rebuild`."""

"""Tests of `rlm/nodes/`."""

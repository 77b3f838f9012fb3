"""Tests of `rlm/repair/`."""

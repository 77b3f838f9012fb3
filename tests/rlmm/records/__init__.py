"""Tests of `rlmm/records/`."""

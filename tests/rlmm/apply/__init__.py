"""Tests of `rlmm/apply/`."""

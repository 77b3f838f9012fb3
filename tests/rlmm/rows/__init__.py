"""Tests of `rlmm/rows/`."""

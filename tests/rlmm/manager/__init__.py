"""Tests of `rlmm/manager/`."""

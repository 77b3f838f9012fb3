"""Tests of `rlmm/view/`."""

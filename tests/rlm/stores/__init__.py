"""Tests of `rlm/stores/`."""

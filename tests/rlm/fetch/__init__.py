"""Tests of `rlm/fetch/`."""

"""Tests of `rlm/quota/`."""

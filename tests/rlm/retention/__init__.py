"""Tests of `rlm/retention/`."""

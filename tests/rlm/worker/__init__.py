"""Tests of `rlm/worker/`."""

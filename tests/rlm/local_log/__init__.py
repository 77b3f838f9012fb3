"""Tests of `rlm/local_log/`."""

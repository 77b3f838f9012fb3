"""Tests of `rlm/leadership/`."""

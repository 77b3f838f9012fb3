"""Tests of `rlm/delete/`."""

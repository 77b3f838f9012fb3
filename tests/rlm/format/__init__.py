"""Tests of `rlm/format/`."""

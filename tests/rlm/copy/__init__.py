"""Tests of `rlm/copy/`."""

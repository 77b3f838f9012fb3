"""Tests of `rlm/migration/`."""

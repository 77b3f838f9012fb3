"""Tests of `rlm/delegated/`."""

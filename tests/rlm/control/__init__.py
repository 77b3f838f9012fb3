"""Tests of `rlm/control/`."""

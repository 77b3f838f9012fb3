"""Tests of `rlm/node_files/`."""

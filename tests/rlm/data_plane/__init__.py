"""Tests of `rlm/data_plane/`."""

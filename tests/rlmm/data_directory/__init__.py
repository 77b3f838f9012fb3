"""Tests of `rlmm/data_directory/`."""

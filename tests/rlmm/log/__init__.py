"""Tests of the metadata log on disk."""

"""Tests of reading segments in a task."""

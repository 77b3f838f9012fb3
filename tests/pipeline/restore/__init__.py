"""Tests of restore."""

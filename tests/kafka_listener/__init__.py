"""Tests of the read listener."""

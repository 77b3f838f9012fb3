"""Tests of the remote log metadata manager."""

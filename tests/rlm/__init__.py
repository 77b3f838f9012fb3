"""Tests of the remote log manager."""

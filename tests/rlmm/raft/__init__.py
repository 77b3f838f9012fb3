"""Tests of the quorum core."""

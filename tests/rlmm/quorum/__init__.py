"""Tests of the quorum's driver."""

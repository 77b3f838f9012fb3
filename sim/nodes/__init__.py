"""Whole nodes of the quorum, the shipped code from driver to view, in one simulated world."""

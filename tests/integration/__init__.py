"""Tests of several parts together, and of parts against real tools."""

"""Tests of that folder."""

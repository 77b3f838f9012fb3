"""Tests of the on-disk formats: golden bytes, round trips, and what damage does."""

"""Tests of `api/routes/`."""

"""Tests of `strandline/settings/`."""

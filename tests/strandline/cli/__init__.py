"""Tests of `strandline/cli/`."""

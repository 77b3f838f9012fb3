"""Tests of `strandline/node/`."""

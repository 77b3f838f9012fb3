"""Tests of `strandline/doctor/`."""

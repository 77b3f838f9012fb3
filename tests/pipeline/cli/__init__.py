"""Tests of the jobs' command line."""

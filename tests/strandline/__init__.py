"""Tests of the command line, settings and composition root."""

"""Tests of the decoder."""

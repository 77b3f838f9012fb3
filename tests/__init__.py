"""Tests: the folders mirror the packages, plus integration/, e2e/, data/ and real/ (real parts)."""

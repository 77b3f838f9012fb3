"""Tests; the folders mirror the packages, plus golden/, integration/, e2e/ and real/ (real parts)."""

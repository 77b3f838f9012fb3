"""Rates of bytes, and turns of copies and reads."""

"""Answers to leaders, followers and readers: offsets, epochs, bytes, records."""

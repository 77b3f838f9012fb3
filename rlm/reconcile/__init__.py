"""Comparison of stores and metadata: adoption, garbage, missing objects."""

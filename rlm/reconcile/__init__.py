"""Stores compared with the metadata: adoption, garbage, missing objects."""

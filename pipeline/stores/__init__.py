"""Stores as the pipeline's tasks open and ask them."""

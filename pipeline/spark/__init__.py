"""Spark's session and its Python workers."""

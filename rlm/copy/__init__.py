"""Copying: which segment is next or why none is, and the steps of one copy."""

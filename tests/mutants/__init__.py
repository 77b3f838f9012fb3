"""A tool: are mistakes in the code noticed? See `run.py`."""

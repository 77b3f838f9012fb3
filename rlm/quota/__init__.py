"""Rate limits, and the order of copies and reads."""

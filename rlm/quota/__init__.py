"""Rate limits, and turns of copies and reads."""

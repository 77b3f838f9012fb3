"""Work on segment bytes: verified, uploaded, read back."""

"""Work on segment bytes: verify, upload, read back."""

"""What `strandline pipeline NAME` runs."""

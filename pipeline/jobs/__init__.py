"""The jobs that `strandline pipeline NAME` runs."""

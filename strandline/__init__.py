"""Command line, settings and the composition root of a Strandline node."""

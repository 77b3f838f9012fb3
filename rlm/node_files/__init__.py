"""Small files of a node: audit, kill switches, scrub results."""

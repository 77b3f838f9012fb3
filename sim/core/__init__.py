"""The world of the quorum core alone."""

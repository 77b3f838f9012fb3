"""Scripts that make test data with real programs."""

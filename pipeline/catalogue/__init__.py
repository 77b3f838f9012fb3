"""The tiered segments as readers see them: from a node, or from the bucket alone."""

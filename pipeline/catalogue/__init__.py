"""What is tiered, as readers see it: from a node, or from the bucket alone."""

"""Wire models: one module for each resource, with its mapping from the node's dataclasses."""

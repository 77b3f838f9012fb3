"""Wire models: one module a resource, each with its mapping from our dataclasses."""

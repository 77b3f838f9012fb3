"""What goes over the wire: one module a resource, each with its mapping from our dataclasses."""

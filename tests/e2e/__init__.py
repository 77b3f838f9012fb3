"""A whole node, started as its users start it, beside a stock broker."""

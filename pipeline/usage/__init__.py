"""The content of a tier and its cost: the pure parts, pictures and page."""

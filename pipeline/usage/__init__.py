"""What a tier holds and what that costs: the pure parts, pictures and page."""

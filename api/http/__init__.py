"""The way of every request: gate, admission, limits, streams, errors and their status."""

"""The rows of the metadata state: keys, values, and queries."""

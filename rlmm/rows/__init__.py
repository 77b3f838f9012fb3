"""The rows of the metadata state: keys, values, and questions to them."""

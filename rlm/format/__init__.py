"""Formats of the objects in a store: keys, manifests, custom metadata."""

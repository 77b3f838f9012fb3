"""Names and bytes of what lies in a store: keys, manifests, custom metadata."""

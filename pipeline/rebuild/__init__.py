"""Makes a metadata snapshot from manifests alone: the pure parts."""

"""A metadata snapshot made from manifests alone: the pure parts."""

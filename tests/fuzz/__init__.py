"""Hostile bytes for every parser of disk, wire and HTTP input."""

"""Deletion of a segment: recorded, deleted, waited for, deleted again, recorded."""

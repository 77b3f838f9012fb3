"""Reads the objects of a segment into Arrow, in a task."""

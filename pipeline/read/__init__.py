"""From the objects of a segment to Arrow, in a task."""

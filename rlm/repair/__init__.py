"""Damaged segments of the tier: found, judged, copied again."""

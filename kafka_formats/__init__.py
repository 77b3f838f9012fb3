"""Kafka's on-disk formats, pure: bytes in, values out, and back."""

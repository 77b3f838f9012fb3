"""Clients' connections to a read replica, and the twin of each at a broker."""

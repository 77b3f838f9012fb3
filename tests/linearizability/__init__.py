"""Histories of concurrent clients, checked for linearizability."""

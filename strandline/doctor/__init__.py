"""Checks of a machine, its stores and its network, and the support bundle."""

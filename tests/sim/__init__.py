"""The simulated worlds themselves."""

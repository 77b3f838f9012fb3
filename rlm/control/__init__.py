"""The base of the control plane: ports, limits, events, problems."""

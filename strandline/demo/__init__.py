"""The demo's broker, nodes and store."""

"""The running node: built, served, restarted, taken down."""

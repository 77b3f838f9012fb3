"""Settings of a node: file, environment, and what they are turned into."""

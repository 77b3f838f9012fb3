"""The settings of a node: file, environment, and the configurations made of them."""

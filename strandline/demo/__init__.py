"""The broker's log directory, the nodes and the store of `strandline demo`."""

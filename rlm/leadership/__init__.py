"""Leadership of partitions: the broker's answers, and this node's decision."""

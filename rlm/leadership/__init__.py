"""Leadership of partitions: the broker's word, and this node's decision."""

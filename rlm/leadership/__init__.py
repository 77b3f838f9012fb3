"""Leadership of partitions: the broker's word, and whether this node works for one."""

"""Access of clients: logins at the brokers, rights in topics, topics that the node itself gives."""

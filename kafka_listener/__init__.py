"""The read listener: Kafka consumers read a partition's whole history from this node.

| Step of a request | Where |
|---|---|
| the client's connection, and its twin at a broker | `connections/` |
| login and rights, as the brokers decide | `access/` |
| the treatment of a request: relayed, read or refused | `protocol/apis.py` |
| offsets and batches that the tier has | `reading/` |
| the answer, without the brokers' addresses | `protocol/node_rewriting.py` |
| the nodes that clients see; the live replicas | `virtual_nodes.py`, `live_replicas.py` |
"""

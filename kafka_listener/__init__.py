"""The read listener: Kafka consumers read a partition's whole history from this node.

| Step of a request | Where |
|---|---|
| the client's connection, and its twin at a broker | `connections/` |
| login and rights, by the brokers' word | `access/` |
| the request taken apart: relayed, read or refused | `protocol/apis.py` |
| offsets and batches that the tier has | `reading/` |
| the answer put together, without the brokers' addresses | `protocol/node_rewriting.py` |
| the nodes that clients are told of; which replicas live | `virtual_nodes.py`, `live_replicas.py` |
"""

"""Clients' connections to a read replica, and the twin of each at a broker.

| Step of a request | File |
|---|---|
| a bootstrap port, and one port for each broker | `listener.py` |
| one client, its login, its twin | `client.py`, `logins.py`, `brokers.py` |
| a share of the event loop and of memory | `shares.py` |
| the answer: relayed, rewritten, or put together | `answers.py` |
| ... to a Fetch: old offsets from the tier, new ones from the leader | `fetching.py` |
| ... to ListOffsets and OffsetForLeaderEpoch | `offset_answers.py` |
| ... to Metadata, while no broker can be asked | `last_metadata.py` |
| the node's own requests to brokers | `log_ends.py`, `leader_*.py`, `topic_*.py` |
"""

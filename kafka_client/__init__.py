"""Kafka's protocol from the client's side: connections, SASL, requests to brokers.

One connection is `connection.py`; `*_requests.py` are requests of one subject each.
`transactional_producer.py` is a producer that fences its predecessor.
"""

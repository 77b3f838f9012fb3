"""Kafka's protocol from the client's side: connections, SASL, requests to brokers."""

"""Access of clients: logins at the brokers, rights in topics, topics that the settings allow.

A login step by step is `login.py`, rights in topics are `rights.py`, and rates by user `rates.py`.
"""

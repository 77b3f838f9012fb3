"""The move from Kafka's own metadata topic, `__remote_log_metadata`, into the metadata log.

So far it is looked at and told, nothing is moved: `strandline migrate check`.
"""

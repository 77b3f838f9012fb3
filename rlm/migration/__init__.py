"""The move from Kafka's own metadata topic, `__remote_log_metadata`, into the metadata log, and the
way back.
"""

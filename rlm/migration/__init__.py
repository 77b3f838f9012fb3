"""The move from Kafka's own metadata topic, `__remote_log_metadata`, into the metadata log, and the
way back.

| Step | File |
|---|---|
| the topic is read: leaders and records, to the end | `topic_reader.py`, `topic_records.py` |
| the topic's partition for a user's partition | `topic_partitioner.py` |
| its records are replayed by Kafka's rules | `topic_replay.py`, `kafka_cache.py` |
| it is checked before a move | `examination.py`, `topic_checks.py`, `settings_check.py` |
| the newest of several topics of one name | `incarnations.py` |
| the import, and its comparison | `import_plan.py`, `comparing.py`, `compared.py` |
| a switch, carried to its end or undone | `switching.py` |
| ... its ports: metadata log, Kafka cluster | `log_side.py`, `broker_side.py`, `no_broker.py` |
| ... bridges' calls; brokers with old leaders | `acknowledgements.py`, `newest_leaders.py` |
| each node's loops, which begin an attempt | `moving.py` |
| ... and hand it over if they don't see the Kafka cluster | `handing_over.py` |
| the shadow: the topic is kept up to date for a way back | `shadow.py` |
| ... the next transaction | `shadow_plan.py` |
| ... fencing, reading to the end, writing | `shadow_writer.py` |
| ... connections to the topic's brokers | `shadow_topic.py` |
"""

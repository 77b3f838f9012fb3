"""The move from Kafka's own metadata topic, `__remote_log_metadata`, into the metadata log, and the
way back.

| Step | File |
|---|---|
| the topic read: leaders and records, to the end | `topic_reader.py`, `topic_records.py` |
| where Kafka puts a partition's records | `topic_partitioner.py` |
| its records replayed by Kafka's rules | `topic_replay.py`, `kafka_cache.py` |
| judged before a move | `examination.py`, `topic_checks.py`, `settings_check.py` |
| topics of one name told apart | `incarnations.py` |
| made records of; compared with the rows | `import_plan.py`, `comparing.py`, `compared.py` |
| a switch, carried to its end or back | `switching.py` |
| ... its ports: metadata log, Kafka cluster | `log_side.py`, `broker_side.py`, `no_broker.py` |
| ... what bridges' questions prove; a broker behind | `acknowledgements.py`, `newest_leaders.py` |
| each node's loops, which begin an attempt | `moving.py` |
| ... of a leader that can't see the Kafka cluster | `handing_over.py` |
| the way back, the topic kept up with the log: its loop | `shadow.py` |
| ... the next transaction, behind what is found | `shadow_plan.py` |
| ... fence, read to the end, write | `shadow_writer.py` |
| ... connections to the topic's brokers | `shadow_topic.py` |
"""

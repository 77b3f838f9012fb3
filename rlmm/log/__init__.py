"""The metadata log on disk, in Kafka's format.

`log_directory.py` appends, reads and cuts its files (`segment_file.py`), all by the operations of
`disk.py`. `recovery.py` opens them after a crash, `quorum_state_file.py` keeps the vote,
`snapshot_files.py` is the format of snapshots.
"""

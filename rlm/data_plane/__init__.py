"""The work on segments' bytes: verification, upload, reads.

| Step | File |
|---|---|
| all calls of a worker | `data_plane.py` |
| a copy: files opened once, then verified | `segment_source.py`, `segment_verification.py` |
| ... uploaded, the manifest last | `segment_copy.py` |
| a read: objects checked against the metadata | `segment_reader.py` |
| ... ranges of them, by verified chunks; cache | `verified_chunks.py`, `chunk_cache.py` |
| ... for HTTP; for a Kafka Fetch | `tiered_read.py`, `batches_read.py` |
| ... of committed records only | `read_committed.py`, `transaction_walk.py` |
| ... read-ahead, also of a log that is read in ranges | `read_ahead.py`, `ranges_in_order.py` |
| segments of Aiven's plug-in | `aiven_reader.py`, `aiven_log.py` |
| ... decrypted and decompressed, for Spark too | `aiven_keys.py`, `chunk_transforms.py` |
| a damaged segment surveyed, and reassembled | `segment_survey.py`, `segment_gathering.py` |
"""

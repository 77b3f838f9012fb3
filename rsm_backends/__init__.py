"""Object stores behind one narrow port.

| Part | File |
|---|---|
| the port, and the base of stores around one | `store.py`, `store_wrapper.py` |
| a store opened by its configuration | `open_store.py`, `store_config.py` |
| S3: the store, its requests; most GETs | `s3.py`, `s3_requests.py`, `s3_quick_get.py` |
| ... blocking reads, for Spark's tasks | `s3_blocking.py` |
| ... answers, believed only in S3's form | `s3_answers.py` |
| ... errors made ours; the table of S3's codes | `s3_client_errors.py`, `s3_errors.py` |
| a file system | `filesystem.py`, `object_files.py`, `upload_files.py` |
| memory | `memory.py` |
| uploads in parts; retries | `multipart.py`, `retrying.py` |
"""

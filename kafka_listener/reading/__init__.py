"""The tier's part of an answer to a consumer.

`fetch_target.py` decides whether the tier or the leader serves an offset, or neither yet;
`leaders.py` helps where a leader is newer than the tier's lineage, `first_copy.py` where nothing
is copied yet. The listener calls the port, `read_port.py`; `TierReading` in `tier_reading.py`
implements it.
"""

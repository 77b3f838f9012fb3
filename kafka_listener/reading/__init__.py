"""The tier's part of an answer to a consumer.

`fetch_target.py` decides: tier, leader, or nowhere yet; where a leader is newer than the tier's
lineage, by `leaders.py`. The listener asks the port, `read_port.py`; `TierReading` in
`tier_reading.py` answers.
"""

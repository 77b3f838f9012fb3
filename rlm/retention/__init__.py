"""Deletes from the tier: by retention, DeleteRecords and topic deletion.

`retention_plan.py` decides, and `expirer.py` proposes the expiry marks and deletions; an admin may
take a mark back (`rlmm/apply/expiry.py`, which also decides when a mark is due). Each node measures
that time in `mark_times.py`. `delete_records_*.py` and `topic_*.py` have the other two causes.
`rlm/delete/` then deletes the segments.
"""

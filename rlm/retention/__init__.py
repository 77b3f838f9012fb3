"""Deletes from the tier: by retention, DeleteRecords and topic deletion.

`retention_plan.py` decides and `expirer.py` proposes what it marks; an admin may take a mark back
(`rlmm/apply/expiry.py`, which also says when it is due). Each node measures that time in
`mark_times.py`. `delete_records_*.py` and `topic_*.py` are the other two causes. How a segment is
then deleted is `rlm/delete/`.
"""

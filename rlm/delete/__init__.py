"""Deletion of a segment: recorded, deleted, waited for, deleted again, recorded.

The steps of one are `clean_up.py`, when each is due `delete_due.py`, all that are under way
`clean_up_tasks.py`. Objects leave a store by `delete_objects` in `rlm/stores/object_deletion.py`
alone.
"""

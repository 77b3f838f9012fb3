"""Deletion of a segment: recorded, deleted, waited for, deleted again, recorded.

The steps of one deletion are in `clean_up.py`, their times in `delete_due.py`, and the deletions
under way in `clean_up_tasks.py`. Only `delete_objects` in `rlm/stores/object_deletion.py` deletes
objects from a store.
"""

"""Comparison of stores and metadata: adoption, garbage, missing objects.

`reconciliation.py` compares a listing with the metadata. After a restart from a snapshot,
`adoption.py` records what the stores have. `collector.py` deletes garbage, `erasure.py` all
versions of what was erased. `*_plan.py` decide.
"""

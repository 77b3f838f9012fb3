"""Comparison of the stores with the metadata: adoption, garbage, erasures, missing objects.

`reconciliation.py` compares a listing with the metadata. After a restart from a snapshot,
`adoption.py` records segments that only the stores have. `collector.py` deletes garbage,
`erasure.py` all versions of erased objects. The `*_plan.py` files decide.
"""

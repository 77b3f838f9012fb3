"""Types of the fast reading of manifests; meanings stand in `usual_manifest.pyx`."""

from typing import Final

from rlm.reconcile.adoption_plan import StoredSegment, WholeSegment

SOURCE: Final[str]
"""SHA-256 of the `usual_manifest.pyx` that it was built from, in hexadecimal."""

def usual_segment(stored: StoredSegment, manifest_bytes: bytes) -> WholeSegment | None: ...

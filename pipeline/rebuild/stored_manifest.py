"""Turns a listed segment and its manifest into its row, or a reason against it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_formats.errors import CorruptData
from pipeline.process.compiled import compiled
from pipeline.rebuild.left_out import Reason
from rlm.format.custom_metadata import CustomMetadata
from rlm.format.manifest import Manifest, parse_manifest
from rlm.format.object_keys import ObjectSuffix
from rlm.reconcile.adoption_plan import StoredSegment, WholeSegment, row_of, told_whole
from rlmm.apply.segments import check_segment
from rlmm.segment import RemoteLogSegmentMetadata


@dataclass(frozen=True, slots=True)
class ToldSegment:
    """A segment from its manifest. `row` is in COPY_SEGMENT_STARTED, without custom metadata, which
    is `objects`: None if a different manager wrote the segment.
    """

    row: RemoteLogSegmentMetadata
    objects: CustomMetadata | None


@dataclass(frozen=True, slots=True)
class NotTold:
    """The reason why a segment's manifest gives no row."""

    reason: Reason
    why: str


def told_by(stored: StoredSegment, manifest_bytes: bytes) -> ToldSegment | NotTold:
    """The segment's row if every listed length is as in the manifest, else the reason."""
    found = _usual(stored, manifest_bytes) or _told(stored, manifest_bytes)
    if isinstance(found, WholeSegment):
        found = ToldSegment(found.row, found.custom_metadata)
    if isinstance(found, ToldSegment):
        problem = check_segment(found.row)
        if problem is not None:
            return NotTold(Reason.DAMAGED, problem.message)
    return found


def _usual(stored: StoredSegment, manifest_bytes: bytes) -> WholeSegment | None:
    module = compiled("pipeline.rebuild.usual_manifest")
    found: WholeSegment | None = (
        None if module is None else module.usual_segment(stored, manifest_bytes)
    )
    return found


def _told(stored: StoredSegment, manifest_bytes: bytes) -> WholeSegment | ToldSegment | NotTold:
    try:
        manifest = parse_manifest(manifest_bytes, source=str(stored.segment_id))
    except CorruptData as error:
        return NotTold(Reason.DAMAGED, str(error))
    if manifest.checksums is None:
        return _of_another_manager(stored, manifest)
    whole = told_whole(stored, manifest, manifest_bytes, None)
    return whole if isinstance(whole, WholeSegment) else NotTold(Reason.DAMAGED, whole)


def _of_another_manager(stored: StoredSegment, manifest: Manifest) -> ToldSegment | NotTold:
    """The row of a manifest without checksums, like those of Kafka's own metadata manager."""
    if (manifest.segment_id, manifest.start_offset) != (stored.segment_id, stored.start_offset):
        return NotTold(Reason.DAMAGED, "its manifest belongs to a different segment")
    transforms = manifest.transforms
    expected = manifest.log_bytes if transforms is None else transforms.chunks.stored_bytes
    listed = stored.sizes[ObjectSuffix.LOG]
    if listed != expected:
        return NotTold(Reason.DAMAGED, f".log has {listed} bytes, but {expected} by the manifest")
    end = max((each.position + each.size for each in manifest.indexes.values()), default=0)
    if stored.sizes[ObjectSuffix.INDEXES] < end:
        return NotTold(Reason.DAMAGED, f".indexes is shorter than the {end} bytes of its indexes")
    return ToldSegment(row_of(manifest), None)

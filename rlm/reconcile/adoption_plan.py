"""Decides which of a partition's segments in the stores are adopted after a restart from a
snapshot. Pure.

The snapshot is older than the stores, so it lacks segments that were copied since, or has them as
unfinished. Segments that are whole and in the lineage are adopted in the order of their offsets,
and only the offsets between them are copied. Other segments stay in the stores, and `strandline
reconcile` lists them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafka_formats.errors import CorruptData
from kafka_formats.leader_epoch_checkpoint import Epochs, epoch_for_offset
from rlm.format.custom_metadata import CustomMetadata
from rlm.format.manifest import Manifest, custom_metadata_for, parse_manifest
from rlm.format.object_keys import ObjectSuffix, ParsedSegmentKey
from rlmm.lineage import within_lineage
from rlmm.partition_state import UNKNOWN_OFFSET, Mode, PartitionState
from rlmm.rows.coverage import Range, epoch_ranges, ranges_in_lineage
from rlmm.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState

WHY_LOST = "after a restart from a snapshot they are neither in the stores nor on the broker"
WHY_GONE = (
    "after a restart from a snapshot they are neither in the stores nor on the disk of the leader, "
    "which tiers the partition; a different broker that has them on its disk serves them while it "
    "leads"
)
WHY_HELD = (
    "after a restart from a snapshot they are not in the stores; this node holds them and copies "
    "them next"
)


@dataclass(frozen=True, slots=True)
class OnMachine:
    """The offsets on the claimant's disk: the broker's log from `start` on, and below it the `held`
    segments, each with its first and last offset (inclusive), ascending. The broker's log should
    have files from `wanted_from` on; offsets that are missing there are fetched from the replicas.
    `files_from`: the offset at which its files really begin. A broker that tiers by itself copies
    from there on, and no offsets are fetched for it.
    """

    start: int
    wanted_from: int
    held: tuple[Range, ...] = ()
    files_from: int = 0


@dataclass(slots=True)
class StoredSegment:
    """A segment with its listed objects; `sizes` has their lengths in bytes."""

    segment_id: RemoteLogSegmentId
    start_offset: int
    store: str
    sizes: dict[ObjectSuffix, int]

    @property
    def is_complete(self) -> bool:
        """True if manifest, log and indexes are listed."""
        return len(self.sizes) == len(ObjectSuffix)


@dataclass(frozen=True, slots=True)
class WholeSegment:
    """A segment that may be adopted. `row` is made from its manifest, without a claim's token."""

    row: RemoteLogSegmentMetadata
    custom_metadata: CustomMetadata


@dataclass(frozen=True, slots=True)
class FoundInStores:
    """The whole segments of a partition without a finished row, and the lineage by the log and
    them. `given_up`: offsets below it that are neither in the stores nor on the disk of a broker
    that tiers by itself are given up; `lost` is a sentence about them, empty if there are none.
    """

    whole: tuple[WholeSegment, ...]
    lineage: Epochs
    given_up: int = UNKNOWN_OFFSET
    lost: str = ""


@dataclass(frozen=True, slots=True)
class Adopt:
    """The step to record this segment as started, unless it is, and as finished."""

    segment: WholeSegment


@dataclass(frozen=True, slots=True)
class StartAt:
    """The step to record a log start first, since none is recorded, or it is too low."""

    leader_epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class Lose:
    """The step to record a lost range first (inclusive): its offsets exist nowhere, or only in the
    node's hold (WHY_HELD), from which a copy will remove it from the lost ranges.
    """

    start: int
    end: int
    why: str = WHY_LOST


@dataclass(frozen=True, slots=True)
class CopyFirst:
    """No more segments can be adopted until this machine's offsets below `until` are copied."""

    until: int


@dataclass(frozen=True, slots=True)
class Done:
    """No more segments can be adopted."""


AdoptionStep = Adopt | StartAt | Lose | CopyFirst | Done


def add_listed(found: dict[RemoteLogSegmentId, StoredSegment], key: ParsedSegmentKey, size: int,
               store: str) -> None:  # fmt: skip
    """Add a listed object to its segment."""
    segment = found.get(key.segment_id)
    if segment is None:
        segment = StoredSegment(key.segment_id, key.start_offset, store, {})
        found[key.segment_id] = segment
    if segment.start_offset == key.start_offset:
        segment.sizes[key.suffix] = size


def expected_sizes(custom: CustomMetadata) -> dict[ObjectSuffix, int]:
    """The lengths in bytes of a finished segment's objects."""
    return {
        ObjectSuffix.LOG: custom.log_bytes,
        ObjectSuffix.INDEXES: custom.indexes_bytes,
        ObjectSuffix.MANIFEST: custom.manifest_bytes,
    }


def why_missing(expected: Mapping[ObjectSuffix, int], found: Mapping[ObjectSuffix, int]) -> str:
    """The differences between the lengths in a sentence; empty if there are none."""
    wrong = [
        f".{suffix} is gone" if suffix not in found
        else f".{suffix} has {found[suffix]} bytes, not {size}"
        for suffix, size in expected.items()
        if found.get(suffix) != size
    ]  # fmt: skip
    return ", ".join(wrong)


def whole_segment(
    stored: StoredSegment, manifest_bytes: bytes, known: RemoteLogSegmentMetadata | None
) -> WholeSegment | str:
    """The segment, or the reason why it is not whole. `known` is its row, in COPY_SEGMENT_STARTED,
    or None.
    """
    try:
        manifest = parse_manifest(manifest_bytes, source=str(stored.segment_id))
    except CorruptData as error:
        return str(error)
    return told_whole(stored, manifest, manifest_bytes, known)


def told_whole(
    stored: StoredSegment,
    manifest: Manifest,
    manifest_bytes: bytes,
    known: RemoteLogSegmentMetadata | None,
) -> WholeSegment | str:
    """The result of `whole_segment` for a parsed manifest."""
    sums = manifest.checksums
    if sums is None:
        return "its manifest has no checksums, so it is not by Strandline"
    if (manifest.segment_id, manifest.start_offset) != (stored.segment_id, stored.start_offset):
        return "its manifest is that of a different segment"
    listed = (stored.sizes.get(ObjectSuffix.LOG), stored.sizes.get(ObjectSuffix.INDEXES))
    expected = (sums.log.size_bytes, sums.indexes.size_bytes)
    if listed != expected:
        return f".log and .indexes have {listed} bytes, but the manifest has {expected}"
    row = row_of(manifest)
    if known is not None and _content(known) != _content(row):
        return "its manifest differs from the row that was recorded when the copy began"
    custom = custom_metadata_for(stored.store, sums.log, sums.indexes, manifest_bytes)
    return WholeSegment(row, custom)


def row_of(manifest: Manifest) -> RemoteLogSegmentMetadata:
    """The row of the copy's COPY_SEGMENT_STARTED record, made from its manifest."""
    return RemoteLogSegmentMetadata(
        segment_id=manifest.segment_id,
        start_offset=manifest.start_offset,
        end_offset=manifest.end_offset,
        broker_id=manifest.broker_id,
        max_timestamp_ms=manifest.max_timestamp_ms,
        event_timestamp_ms=manifest.event_timestamp_ms,
        leader_epochs=tuple((entry.epoch, entry.start_offset) for entry in manifest.leader_epochs),
        size_bytes=manifest.log_bytes,
        custom_metadata=None,
        state=SegmentState.COPY_SEGMENT_STARTED,
        txn_index_empty=manifest.txn_index_empty,
    )


def _content(row: RemoteLogSegmentMetadata) -> tuple[object, ...]:
    return row.start_offset, row.end_offset, row.leader_epochs, row.size_bytes


def next_step(
    state: PartitionState,
    whole: Sequence[WholeSegment],
    machine: OnMachine,
    given_up: int = UNKNOWN_OFFSET,
) -> AdoptionStep:
    """The next step. `whole` are the segments that were not tried yet; `given_up`: see
    `FoundInStores`.
    """
    lowest = _lowest(state, whole)
    if lowest is None:
        return Done()
    first, segment = lowest
    if state.next_offset < 0:
        below = machine.start < min(first, machine.files_from)
        if below and state.mode is Mode.DELEGATED:  # these offsets can't be copied first
            return StartAt(_epoch_at(state.lineage, machine.start), machine.start)
        return _start(state.lineage, first, machine)
    following = max(state.next_offset, given_up)
    if state.mode is Mode.DELEGATED:
        # The broker deleted its records below the log start; these are no lost ranges.
        following = max(following, machine.wanted_from)
    if first <= following:
        return Adopt(segment)
    if state.mode is Mode.DELEGATED:
        return _beside_the_broker(state, following, first, machine)
    if machine.wanted_from <= following:
        return CopyFirst(first)
    return _lose(following, min(first, machine.wanted_from) - 1, machine.held)


def _lowest(
    state: PartitionState, whole: Sequence[WholeSegment]
) -> tuple[int, WholeSegment] | None:
    """The segment that serves the lowest offset in the lineage, and that offset; of several the
    longest. None: no segment is served.

    Its start may be lower: of a file whose head DeleteRecords or retention had taken when it was
    copied, a copy knows nothing of the head, which an earlier, shorter copy may have.
    """
    found: tuple[int, WholeSegment] | None = None
    for segment in in_order(whole):
        row = segment.row
        if found is not None and row.start_offset > found[0]:
            break
        first = _first_served(state.lineage, row)
        if first is None or row.end_offset < state.log_start_offset:
            continue
        if found is None or (first, -row.end_offset) < (found[0], -found[1].row.end_offset):
            found = first, segment
    return found


def _beside_the_broker(
    state: PartitionState, following: int, first: int, machine: OnMachine
) -> StartAt | Lose | CopyFirst:
    """The step for a hole in a partition that its broker tiers. The broker copies the segments on
    its disk above the highest copied offset, so segments above a hole that is on that disk are not
    adopted before the copy.
    """
    end = min(first, machine.files_from) - 1
    if end < following:
        return CopyFirst(first)
    if state.next_offset < machine.wanted_from:  # offsets that the broker deleted are not lost
        return StartAt(_epoch_at(state.lineage, following), following)
    return Lose(following, end, WHY_GONE)


def _epoch_at(lineage: Epochs, offset: int) -> int:
    epoch = epoch_for_offset(lineage, offset)
    return lineage[0].epoch if epoch is None else epoch


def _start(lineage: Epochs, first: int, machine: OnMachine) -> StartAt | CopyFirst:
    """The step to begin at the lowest offset that exists, since offsets below the recorded log
    start are never copied.
    """
    if machine.start < first:
        return CopyFirst(first)  # the first copy records this machine's log start
    lowest = min((first, *(held for held, _ in machine.held)))
    return StartAt(_epoch_at(lineage, lowest), lowest)


def _lose(start: int, end: int, held: Sequence[Range]) -> Lose:
    """The step for the lower end of a hole, up to where its offsets begin or cease to be held."""
    for first, last in held:
        if first <= start <= last:
            return Lose(start, min(last, end), WHY_HELD)
        if start < first <= end:
            return Lose(start, first - 1)
    return Lose(start, end)


def in_order(whole: Sequence[WholeSegment]) -> list[WholeSegment]:
    """The segments by start offset; of those with the same one, the longer first."""
    return sorted(whole, key=lambda each: (each.row.start_offset, -each.row.end_offset))


def _first_served(lineage: Epochs, row: RemoteLogSegmentMetadata) -> int | None:
    """The first offset of the segment that look-ups can find; None if it is outside the lineage."""
    if not within_lineage(row.start_offset, row.end_offset, row.leader_epochs, lineage, None):
        return None
    served = ranges_in_lineage(lineage, epoch_ranges(row))
    return served[0][0] if served else None

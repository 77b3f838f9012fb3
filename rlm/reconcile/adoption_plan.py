"""Decides which of a partition's objects become finished segments after a restart from a snapshot.
Pure.

The snapshot is older than the store, so it lacks segments copied since, or knows them half. Those
that are whole and in the lineage are adopted in offset order, and only what is between them is
copied. The others stay in the store, and `strandline reconcile` lists them.
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

WHY_LOST = "in the store neither before nor after a restart from a snapshot, nor on the broker"
WHY_GONE = (
    "in the store neither before nor after a restart from a snapshot, nor on the disk of its "
    "leader, which tiers it; another broker that has them on its disk serves them while it leads"
)
WHY_HELD = "not in the store after a restart from a snapshot; held by this node, and copied next"


@dataclass(frozen=True, slots=True)
class OnMachine:
    """The offsets on the claimant's disk: the broker's own from `start` on, or lower, and `held`
    segments below, each with its first and last offset, ascending. The broker's log should have
    files from `wanted_from` on, and what of it is gone is fetched from its replicas. `files_from`:
    where its files do begin. A broker that tiers by itself copies from there on, and fetches none.
    """

    start: int
    wanted_from: int
    held: tuple[Range, ...] = ()
    files_from: int = 0


@dataclass(slots=True)
class StoredSegment:
    """A segment's objects as listed: lengths in bytes by suffix."""

    segment_id: RemoteLogSegmentId
    start_offset: int
    store: str
    sizes: dict[ObjectSuffix, int]

    @property
    def is_complete(self) -> bool:
        """True with manifest, log and indexes."""
        return len(self.sizes) == len(ObjectSuffix)


@dataclass(frozen=True, slots=True)
class WholeSegment:
    """A segment that may be adopted; `row` is from its manifest and lacks a claim's token."""

    row: RemoteLogSegmentMetadata
    custom_metadata: CustomMetadata


@dataclass(frozen=True, slots=True)
class FoundInStores:
    """The whole segments of a partition that have no finished row, and the lineage that the log and
    they tell together. Offsets below `given_up` that are neither there nor on the disk of a broker
    that tiers by itself are waited for no more; `lost` says so, empty without any.
    """

    whole: tuple[WholeSegment, ...]
    lineage: Epochs
    given_up: int = UNKNOWN_OFFSET
    lost: str = ""


@dataclass(frozen=True, slots=True)
class Adopt:
    """Add this segment (unless it is known as COPY_SEGMENT_STARTED) and finish it."""

    segment: WholeSegment


@dataclass(frozen=True, slots=True)
class StartAt:
    """Record a log start first: the state knows nothing of the partition."""

    leader_epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class Lose:
    """Record a lost range first, offsets inclusive: no copy of it exists, or the node's hold alone
    has it (WHY_HELD), whose copy takes it off the lost ranges.
    """

    start: int
    end: int
    why: str = WHY_LOST


@dataclass(frozen=True, slots=True)
class CopyFirst:
    """Nothing more can be adopted before this machine's offsets below `until` are copied."""

    until: int


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing more can be adopted."""


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
    """The lengths of a finished segment's objects."""
    return {
        ObjectSuffix.LOG: custom.log_bytes,
        ObjectSuffix.INDEXES: custom.indexes_bytes,
        ObjectSuffix.MANIFEST: custom.manifest_bytes,
    }


def why_missing(expected: Mapping[ObjectSuffix, int], found: Mapping[ObjectSuffix, int]) -> str:
    """The difference as a sentence; empty without one."""
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
    """The segment, or why it is not whole. `known` is its row, in COPY_SEGMENT_STARTED."""
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
    """Judge a segment as `whole_segment` does, by a parsed manifest."""
    sums = manifest.checksums
    if sums is None:
        return "its manifest has no checksums: it was not written by Strandline"
    if (manifest.segment_id, manifest.start_offset) != (stored.segment_id, stored.start_offset):
        return "its manifest is another segment's"
    listed = (stored.sizes.get(ObjectSuffix.LOG), stored.sizes.get(ObjectSuffix.INDEXES))
    expected = (sums.log.size_bytes, sums.indexes.size_bytes)
    if listed != expected:
        return f".log and .indexes have {listed} bytes, the manifest says {expected}"
    row = row_of(manifest)
    if known is not None and _content(known) != _content(row):
        return "its manifest differs from what was recorded when the copy began"
    custom = custom_metadata_for(stored.store, sums.log, sums.indexes, manifest_bytes)
    return WholeSegment(row, custom)


def row_of(manifest: Manifest) -> RemoteLogSegmentMetadata:
    """The row as its COPY_SEGMENT_STARTED had it, from the manifest of the copy."""
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
    """`whole`: segments not yet tried; `given_up` as in `FoundInStores`."""
    for segment in in_order(whole):
        row = segment.row
        first = _first_served(state.lineage, row)
        if first is None or row.end_offset < state.log_start_offset:
            continue
        if state.next_offset < 0:
            below = machine.start < min(first, machine.files_from)
            if below and state.mode is Mode.DELEGATED:  # on no disk: nobody copies that first
                return StartAt(_epoch_at(state.lineage, machine.start), machine.start)
            return _start(state.lineage, first, machine)
        following = max(state.next_offset, given_up)
        if state.mode is Mode.DELEGATED:
            # Below the log start its broker deleted all, which the log takes without lost ranges.
            following = max(following, machine.wanted_from)
        if first <= following:
            return Adopt(segment)
        if state.mode is Mode.DELEGATED:
            return _beside_the_broker(state, following, first, machine)
        if machine.wanted_from <= following:
            return CopyFirst(first)
        return _lose(following, min(first, machine.wanted_from) - 1, machine.held)
    return Done()


def _beside_the_broker(
    state: PartitionState, following: int, first: int, machine: OnMachine
) -> StartAt | Lose | CopyFirst:
    """A hole of a partition that its broker tiers. The broker copies what its disk has above the
    highest copied offset: nothing above a hole on that disk is adopted before.
    """
    end = min(first, machine.files_from) - 1
    if end < following:
        return CopyFirst(first)
    if state.next_offset < machine.wanted_from:  # what it deleted itself is not lost
        return StartAt(_epoch_at(state.lineage, following), following)
    return Lose(following, end, WHY_GONE)


def _epoch_at(lineage: Epochs, offset: int) -> int:
    epoch = epoch_for_offset(lineage, offset)
    return lineage[0].epoch if epoch is None else epoch


def _start(lineage: Epochs, first: int, machine: OnMachine) -> StartAt | CopyFirst:
    """Begin at the lowest offset that anybody has: below a log start nothing is copied any more."""
    if machine.start < first:
        return CopyFirst(first)  # copying begins with the log start of the machine
    lowest = min((first, *(held for held, _ in machine.held)))
    return StartAt(_epoch_at(lineage, lowest), lowest)


def _lose(start: int, end: int, held: Sequence[Range]) -> Lose:
    """The lower end of a hole: as much of it as is held, or as much as is not."""
    for first, last in held:
        if first <= start <= last:
            return Lose(start, min(last, end), WHY_HELD)
        if start < first <= end:
            return Lose(start, first - 1)
    return Lose(start, end)


def in_order(whole: Sequence[WholeSegment]) -> list[WholeSegment]:
    """Segments by start offset; if equal, the longer first."""
    return sorted(whole, key=lambda each: (each.row.start_offset, -each.row.end_offset))


def _first_served(lineage: Epochs, row: RemoteLogSegmentMetadata) -> int | None:
    """The first offset that look-ups would reach; None outside the lineage."""
    if not within_lineage(row.start_offset, row.end_offset, row.leader_epochs, lineage, None):
        return None
    served = ranges_in_lineage(lineage, epoch_ranges(row))
    return served[0][0] if served else None

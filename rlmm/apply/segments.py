"""The life of a segment: COPY_STARTED, COPY_FINISHED, DELETE_STARTED, DELETE_FINISHED.

The order of checks is the same everywhere: first, a repetition with equal content has no effect,
from any sender; then the right to write, then the state. Broker id, event time and token do not
belong to the content.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kafka_formats.leader_epoch_checkpoint import Epochs
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.apply.claims import check_partition
from rlmm.apply.offsets import shrink_lost_ranges
from rlmm.apply.outcome import (
    ACCEPTED,
    NO_EFFECT,
    Draft,
    Outcome,
    Verdict,
    conflict,
    decided_otherwise,
    deletes_held_back,
    deleting_paused,
    fenced,
    find,
    find_live,
    gone,
    invalid,
    is_gone,
    without_token,
)
from rlmm.apply.purge import bury
from rlmm.lineage import ascending, epoch_bounds, within_lineage
from rlmm.partition_state import Mode
from rlmm.records.fixed_layout import encode_segment_row
from rlmm.rows import keys, values
from rlmm.rows.coverage import EpochRange, Range, cover, epoch_ranges, ranges_in_lineage, uncover
from rlmm.rows.partitions import PartitionRow
from rlmm.rows.reads import highest_recorded, is_adopting, next_offset, read_lineage, read_segment
from rlmm.segment import (
    OFFSET_MAX,
    SEGMENT_TRANSITIONS,
    PartitionDeleteState,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    SegmentState,
)

SEGMENT_EPOCHS_MAX = 10_000
CUSTOM_METADATA_BYTES_MAX = 4_096


def apply_add(draft: Draft, added: RemoteLogSegmentMetadata) -> Outcome:
    """Apply COPY_SEGMENT_STARTED: an id is recorded before the first byte of its objects."""
    partition = added.segment_id.partition
    problem = check_partition(partition) or check_segment(added)
    if problem is not None:
        return problem
    known = read_segment(draft.rows, added.segment_id.id)
    if known is not None and _equal_content(known, added):
        return NO_EFFECT
    if _is_tombstone(draft, added.segment_id.id):
        return gone(f"segment {added.segment_id.id} was deleted: take a new id")
    row = find_live(draft, partition)
    if isinstance(row, Outcome):
        return row
    problem = without_token(row, added.token, "an add")
    if problem is not None:
        return problem
    claim = row.standing_claim
    assert claim is not None
    if added.writer != claim.incarnation:
        return fenced(
            f"segment {added.segment_id.id} was added by a different incarnation than the one "
            "whose claim is in force: stop this copy"
        )
    if known is not None:
        return conflict(
            f"segment {added.segment_id.id} is recorded already, as {known.state.name}: take a new "
            "id for every attempt"
        )
    _put_segment(draft, added if added.finished_at < 0 else replace(added, finished_at=-1))
    draft.rows.put(keys.unfinished_key(partition, added.segment_id.id), b"")
    draft.count(partition, row, copy_started=1)
    return ACCEPTED


def check_segment(added: RemoteLogSegmentMetadata) -> Outcome | None:
    """Return INVALID for content that no segment can have."""
    if added.state is not SegmentState.COPY_SEGMENT_STARTED:
        return invalid(f"a segment is added in COPY_SEGMENT_STARTED, not {added.state.name}")
    return check_content(added)


def check_content(added: RemoteLogSegmentMetadata) -> Outcome | None:
    """Return INVALID for offsets, epochs or custom metadata that no segment can have, in any
    state.
    """
    if not 0 <= added.start_offset <= added.end_offset <= OFFSET_MAX:
        return invalid(f"{added.start_offset}-{added.end_offset} is not a range of offsets")
    if added.size_bytes < 0:
        return invalid(f"{added.size_bytes} is not a size")
    epochs = added.leader_epochs
    if not epochs or not ascending(epochs) or epochs[-1][1] > added.end_offset:
        return invalid(
            "the segment's leader epochs are empty, not ascending, or begin above its end offset"
        )
    if len(epochs) > SEGMENT_EPOCHS_MAX:
        return invalid(f"a segment has at most {SEGMENT_EPOCHS_MAX} leader epochs")
    return _check_custom_metadata(added.custom_metadata)


def _check_custom_metadata(custom_metadata: bytes | None) -> Outcome | None:
    if custom_metadata is None or len(custom_metadata) <= CUSTOM_METADATA_BYTES_MAX:
        return None
    return invalid(f"custom metadata has at most {CUSTOM_METADATA_BYTES_MAX} bytes")


def _equal_content(known: RemoteLogSegmentMetadata, added: RemoteLogSegmentMetadata) -> bool:
    return known == replace(
        added,
        broker_id=known.broker_id,
        event_timestamp_ms=known.event_timestamp_ms,
        token=known.token,
        finished_at=known.finished_at,
    )


def apply_update(draft: Draft, update: RemoteLogSegmentMetadataUpdate) -> Outcome:
    """Apply COPY_SEGMENT_FINISHED, DELETE_SEGMENT_STARTED or DELETE_SEGMENT_FINISHED."""
    problem = _check_custom_metadata(update.custom_metadata)
    if problem is not None:
        return problem
    if update.state is SegmentState.COPY_SEGMENT_STARTED:
        return invalid("COPY_SEGMENT_STARTED is an add, not an update")
    known = read_segment(draft.rows, update.segment_id.id)
    if known is None:
        return _without_row(draft, update)
    if known.segment_id != update.segment_id:
        return conflict(
            f"segment {update.segment_id.id} belongs to {known.segment_id.partition}, not to "
            f"{update.segment_id.partition}"
        )
    if known.state is update.state:
        return _repeated(known, update)
    if update.state is SegmentState.COPY_SEGMENT_FINISHED:
        return _copy_finished(draft, known, update)
    if update.state is SegmentState.DELETE_SEGMENT_STARTED:
        return _delete_started(draft, known, update)
    return _delete_finished(draft, known, update)


def _without_row(draft: Draft, update: RemoteLogSegmentMetadataUpdate) -> Outcome:
    if _is_tombstone(draft, update.segment_id.id):
        if update.state is SegmentState.DELETE_SEGMENT_FINISHED:
            return NO_EFFECT
        return gone(f"segment {update.segment_id.id} was deleted")
    return is_gone(draft, update.segment_id.partition) or conflict(
        f"segment {update.segment_id.id} is not known: it was never added"
    )


def _is_tombstone(draft: Draft, id_: bytes) -> bool:
    return draft.rows.get(keys.segment_tombstone_key(id_)) is not None


def _repeated(known: RemoteLogSegmentMetadata, update: RemoteLogSegmentMetadataUpdate) -> Outcome:
    if update.custom_metadata in (None, known.custom_metadata):
        return NO_EFFECT
    return conflict(
        f"segment {update.segment_id.id} is {known.state.name} with different custom metadata: "
        "read it again, then decide"
    )


def _wrong_state(
    known: RemoteLogSegmentMetadata, update: RemoteLogSegmentMetadataUpdate
) -> Outcome | None:
    if update.state in SEGMENT_TRANSITIONS[known.state]:
        return None
    return conflict(
        f"segment {update.segment_id.id} is in state {known.state.name} and cannot go to "
        f"{update.state.name}: read it again, then decide"
    )


def _copy_finished(
    draft: Draft, known: RemoteLogSegmentMetadata, update: RemoteLogSegmentMetadataUpdate
) -> Outcome:
    partition = update.segment_id.partition
    row = find_live(draft, partition)
    if isinstance(row, Outcome):
        return row
    claim = row.standing_claim
    # After a restart from a snapshot the claimant finishes copies that other nodes had uploaded.
    started_here = known.writer == update.writer or is_adopting(draft.rows, partition)
    if claim is None or update.writer != claim.incarnation or not started_here:
        return fenced(
            f"segment {update.segment_id.id} can be finished only by the node that started it, "
            "while its claim is in force: stop this copy"
        )
    if row.mode is Mode.DELEGATED:
        # A copy that its broker made under an earlier claim may lie outside the log by now.
        problem = without_token(row, update.token, "the end of a broker's copy")
        if problem is not None:
            return problem
    ranges = epoch_ranges(known)
    lineage = read_lineage(draft.rows, partition)
    served = ranges_in_lineage(lineage, ranges)
    problem = _wrong_state(known, update) or _out_of_place(draft, row, known, lineage, served)
    if problem is not None:
        return problem
    finished = replace(
        known,
        state=SegmentState.COPY_SEGMENT_FINISHED,
        broker_id=update.broker_id,
        event_timestamp_ms=update.event_timestamp_ms,
        custom_metadata=_kept(known, update),
        max_timestamp_ms=(
            known.max_timestamp_ms if update.max_timestamp_ms < 0 else update.max_timestamp_ms
        ),
        finished_at=draft.offset,
    )
    _put_segment(draft, finished)
    draft.rows.delete(keys.unfinished_key(partition, update.segment_id.id))
    cover(draft.rows, finished)
    raise_highest_copied(draft, partition, ranges)
    shrink_lost_ranges(draft, partition, served)
    draft.count(partition, row, copy_started=-1, copy_finished=1, size_bytes=finished.size_bytes)
    return ACCEPTED


def _out_of_place(
    draft: Draft,
    row: PartitionRow,
    known: RemoteLogSegmentMetadata,
    lineage: Epochs,
    served: list[Range],
) -> Outcome | None:
    """Check the offsets of a copy. In sidecar mode it must lie in the lineage, by which it serves
    `served`, and leave no gap; in delegated mode the broker's own remote log manager decides.
    """
    if row.mode is not Mode.SIDECAR:
        return None
    partition = known.segment_id.partition
    if not within_lineage(known.start_offset, known.end_offset, known.leader_epochs, lineage, None):
        return Outcome(
            Verdict.DIVERGED,
            f"segment {known.segment_id.id} lies outside the lineage of {partition}: give it up",
        )
    following = next_offset(draft.rows, partition, lineage, row.log_start_offset)
    if following < 0:
        return Outcome(
            Verdict.GAP, f"the log start of {partition} is not known: record a log start first"
        )
    first = served[0][0] if served else known.start_offset
    if first > following:
        return Outcome(
            Verdict.GAP,
            f"segment {known.segment_id.id} serves from {first} on, above the next offset "
            f"{following} of {partition}: copy the offsets between, or record them as lost",
        )
    return None


def raise_highest_copied(
    draft: Draft, partition: TopicIdPartition, ranges: Iterable[EpochRange]
) -> None:
    """Raise the highest copied offset of each epoch to the end of its range; never lower it."""
    for epoch, _, end in ranges:
        before = highest_recorded(draft.rows, partition, epoch)
        if before is None or before < end:
            draft.rows.put(keys.highest_copied_key(partition, epoch), values.encode_offset(end))


def _delete_started(
    draft: Draft, known: RemoteLogSegmentMetadata, update: RemoteLogSegmentMetadataUpdate
) -> Outcome:
    partition = update.segment_id.partition
    row = find(draft, partition)
    if isinstance(row, Outcome):
        return row
    partition_goes = row.delete_state is PartitionDeleteState.DELETE_PARTITION_STARTED
    problem = None if partition_goes else without_token(row, update.token, "a delete")
    problem = problem or _not_expected(known, update) or _wrong_state(known, update)
    problem = problem or deletes_held_back(draft)
    ours = partition_goes or row.mode is Mode.SIDECAR
    if known.state is SegmentState.COPY_SEGMENT_FINISHED and ours:
        problem = problem or deleting_paused(draft, partition)
        problem = problem or decided_otherwise(draft, partition, update.policy_offset)
    if problem is None and not partition_goes and is_adopting(draft.rows, partition):
        problem = conflict(
            f"the segments of {partition} in the store are not recorded yet: wait for its adoption"
        )
    if problem is not None:
        return problem
    served_alone: list[EpochRange] = []
    if known.state is SegmentState.COPY_SEGMENT_FINISHED:
        served_alone = uncover(draft.rows, known)
    if row.mode is Mode.SIDECAR and not partition_goes:
        in_use = _needed(draft, row, partition, served_alone)
        if in_use is not None:
            return in_use
    was_finished = known.state is SegmentState.COPY_SEGMENT_FINISHED
    deleted = replace(
        known,
        state=SegmentState.DELETE_SEGMENT_STARTED,
        broker_id=update.broker_id,
        event_timestamp_ms=update.event_timestamp_ms,
        custom_metadata=_kept(known, update),
    )
    _put_segment(draft, deleted)
    draft.rows.put(keys.unfinished_key(partition, update.segment_id.id), b"")
    draft.count(
        partition,
        row,
        copy_started=0 if was_finished else -1,
        copy_finished=-1 if was_finished else 0,
        delete_started=1,
        size_bytes=-known.size_bytes if was_finished else 0,
    )
    return ACCEPTED


def _not_expected(
    known: RemoteLogSegmentMetadata, update: RemoteLogSegmentMetadataUpdate
) -> Outcome | None:
    """Return an outcome unless the segment is as the update expects: a clean-up must not remove a
    segment that was finished meanwhile.
    """
    if update.expected_state is None:
        return invalid("a delete lacks the state in which it expects the segment: name it")
    if update.expected_state is not known.state:
        return conflict(
            f"segment {update.segment_id.id} is {known.state.name}, not "
            f"{update.expected_state.name}: read it again, then decide"
        )
    if known.custom_metadata is not None and update.custom_metadata not in (
        None,
        known.custom_metadata,
    ):
        return conflict(
            f"segment {update.segment_id.id} has different custom metadata: send it back "
            "unchanged, or send none"
        )
    return None


def _needed(
    draft: Draft, row: PartitionRow, partition: TopicIdPartition, served_alone: list[EpochRange]
) -> Outcome | None:
    """Return IN_USE if the lineage, from log start on, would lose an offset."""
    if not served_alone:
        return None
    lineage = read_lineage(draft.rows, partition)
    for epoch, start, end in served_alone:
        bounds = epoch_bounds(lineage, epoch)
        if bounds is None:
            continue
        first = max(start, bounds[0], row.log_start_offset)
        last = min(end, bounds[1])
        if first <= last:
            return Outcome(
                Verdict.IN_USE,
                f"offsets {first}-{last} of epoch {epoch} of {partition} are served only by this "
                f"segment, and log start is {row.log_start_offset}: move log start first",
            )
    return None


def _delete_finished(
    draft: Draft, known: RemoteLogSegmentMetadata, update: RemoteLogSegmentMetadataUpdate
) -> Outcome:
    """Apply DELETE_SEGMENT_FINISHED, from any node: the objects are gone, only the row is left."""
    partition = update.segment_id.partition
    problem = _wrong_state(known, update) or deletes_held_back(draft)
    if problem is not None:
        return problem
    row = find(draft, partition)
    if isinstance(row, Outcome):
        return row
    draft.rows.delete(keys.segment_key(update.segment_id.id))
    draft.rows.delete(keys.unfinished_key(partition, update.segment_id.id))
    bury(draft, keys.segment_tombstone_key(update.segment_id.id), keys.partition_bytes(partition))
    draft.count(partition, row, delete_started=-1)
    return ACCEPTED


def _kept(known: RemoteLogSegmentMetadata, update: RemoteLogSegmentMetadataUpdate) -> bytes | None:
    """The custom metadata of the update; if it has none, the stored one."""
    return known.custom_metadata if update.custom_metadata is None else update.custom_metadata


def _put_segment(draft: Draft, segment: RemoteLogSegmentMetadata) -> None:
    draft.rows.put(keys.segment_key(segment.segment_id.id), encode_segment_row(segment))

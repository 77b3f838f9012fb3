"""Segments of Kafka's own metadata topic, recorded while its brokers wait (phase SWITCHING).

The topic is authoritative: the first record of a partition's import drops all that the metadata log
has of the partition, without tombstones, since the objects still exist. So an import that is
repeated after a crash, or after going back, has the same result. Each record names the number of
segments imported before it (`at`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice, pairwise

from kafka_formats.errors import CorruptData, InternalError
from kafka_formats.leader_epoch_checkpoint import Epochs
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.apply.claims import LINEAGE_EPOCHS_MAX, check_partition
from rlmm.apply.expiry import forget_expiry
from rlmm.apply.migration import below_level
from rlmm.apply.outcome import ACCEPTED, NO_EFFECT, Draft, Outcome, conflict, invalid, wrong_name
from rlmm.apply.partition_delete import leave_the_name
from rlmm.apply.segments import check_content, raise_highest_copied
from rlmm.lineage import ascending, filtered
from rlmm.migration_phase import MigrationPhase
from rlmm.partition_state import UNKNOWN_OFFSET, Claim, Mode
from rlmm.records.control_records import SegmentsImported
from rlmm.records.fixed_layout import decode_segment_row
from rlmm.rows import keys, values
from rlmm.rows.coverage import EpochRange, cover_many, epoch_ranges, uncover
from rlmm.rows.imported import IMPORTER, is_row_of
from rlmm.rows.migration import find_migration
from rlmm.rows.partitions import PartitionRow
from rlmm.rows.queries import list_segments
from rlmm.rows.reads import read_partition_row, read_restart
from rlmm.rows.rows import prefix_end
from rlmm.segment import OFFSET_MAX, RemoteLogSegmentMetadata, SegmentState

IMPORTED_MAX = 200
"""Limit of the segments that a record imports or drops. It is part of the rules of apply."""

_STATES = frozenset(SegmentState) - {SegmentState.DELETE_SEGMENT_FINISHED}


def apply_segments_imported(draft: Draft, record: SegmentsImported) -> Outcome:
    """Accept the record in the phase SWITCHING that it names, if its `at` is the number of segments
    imported so far.
    """
    problem = below_level(draft, "an import") or _check(record)
    if problem is not None:
        return problem
    segments = _decoded(record)
    if isinstance(segments, Outcome):
        return segments
    row = _row_for(draft, record)
    if isinstance(row, Outcome):
        return row
    if row.mode_offset < 0 and record == SegmentsImported(
        record.partition, record.since, 0, last=True, unknown_tags=record.unknown_tags
    ):
        return NO_EFFECT  # there is nothing to remove
    if record.at == 0:
        dropped = _drop(draft, record, row)
        if isinstance(dropped, Outcome):
            return dropped
        row = dropped
    problem = _put(draft, record, row, segments)
    if problem is not None:
        return problem
    if record.last:
        _end(draft, record)
    else:
        count = values.encode_offset(record.at + len(segments))
        draft.rows.put(keys.importing_key(record.partition), count)
    return ACCEPTED


def _check(record: SegmentsImported) -> Outcome | None:
    problem = check_partition(record.partition)
    if problem is not None:
        return problem
    if len(record.rows) > IMPORTED_MAX or record.at < 0:
        return invalid(f"a record imports at most {IMPORTED_MAX} segments, from 0 on")
    if not record.last:
        if record.lineage or record.highest or record.log_start_offset != UNKNOWN_OFFSET:
            return invalid("lineage, highest offsets and log start come with the last record")
        return None
    if not UNKNOWN_OFFSET <= record.log_start_offset <= OFFSET_MAX:
        return invalid(f"{record.log_start_offset} is not a log start")
    lineage = record.lineage
    if lineage and (not ascending(lineage) or filtered(lineage) != lineage):
        return invalid("leader epochs and their offsets ascend from 0 on")
    if max(len(lineage), len(record.highest)) > LINEAGE_EPOCHS_MAX:
        return invalid(f"there are more than {LINEAGE_EPOCHS_MAX} leader epochs")
    return _check_highest(record.highest, lineage)


def _check_highest(highest: Epochs, lineage: Epochs) -> Outcome | None:
    offsets = [offset for _, offset in (*highest, *lineage)]
    if offsets and not 0 <= min(offsets) <= max(offsets) <= OFFSET_MAX:
        return invalid(f"offsets are from 0 to {OFFSET_MAX}")
    if highest and highest[0].epoch < 0:
        return invalid("leader epochs are not negative")
    if any(before.epoch >= after.epoch for before, after in pairwise(highest)):
        return invalid("highest offsets come by ascending leader epoch")
    return None


def _decoded(record: SegmentsImported) -> list[RemoteLogSegmentMetadata] | Outcome:
    """The segments, if each is as `as_imported` leaves it."""
    found = []
    for value in record.rows:
        try:
            segment = decode_segment_row(value)
        except (CorruptData, InternalError) as error:
            return invalid(f"an imported row is not that of a segment: {error}")
        if segment.segment_id.partition != record.partition or segment.state not in _STATES:
            return invalid(f"{segment.segment_id} as {segment.state.name} is not imported here")
        problem = check_content(segment)
        if problem is not None:
            return problem
        if not is_row_of(segment, record.since):
            return invalid(f"{segment.segment_id} is not a row of the import of {record.since}")
        found.append(segment)
    return found


def _row_for(draft: Draft, record: SegmentsImported) -> PartitionRow | Outcome:
    """The partition's row; a new one if none is written yet."""
    migration = find_migration(draft.rows)
    if migration.phase is not MigrationPhase.SWITCHING or migration.since != record.since:
        return conflict(
            f"segments are imported in the phase SWITCHING of metadata offset {record.since}, and "
            f"the phase is {migration.phase.name} since {migration.since}"
        )
    partition = record.partition
    done = draft.rows.get(keys.importing_key(partition))
    if record.at and (done is None or values.decode_offset(done) != record.at):
        there = "none" if done is None else values.decode_offset(done)
        return conflict(
            f"{there} segments of {partition} are imported, but these follow {record.at}: begin "
            "again with the first"
        )
    row = read_partition_row(draft.rows, partition)
    if row is None:
        return PartitionRow(partition.topic, Mode.DELEGATED, mode_offset=UNKNOWN_OFFSET)
    if row.mode is not Mode.DELEGATED and _holds_anything(row):
        return conflict(
            f"{partition} is {row.mode.name} in the metadata log, but Kafka's metadata topic has "
            "it too: only one of them may have its segments"
        )
    return wrong_name(row, partition) or row


def _holds_anything(row: PartitionRow) -> bool:
    return _segments_of(row) > 0 or row.claim is not None or row.mode_offset >= 0


def _segments_of(row: PartitionRow) -> int:
    return row.copy_started + row.copy_finished + row.delete_started


def _drop(draft: Draft, record: SegmentsImported, row: PartitionRow) -> PartitionRow | Outcome:
    """Drop what is recorded of the partition; returns its row after that. A record without
    segments, unless it is the last, drops a part of the segments where there are many.
    """
    partition = record.partition
    drops_alone = not record.rows and not record.last
    if _segments_of(row) > IMPORTED_MAX and not drops_alone:
        return conflict(
            f"{partition} has {_segments_of(row)} segments here: records without segments drop "
            f"{IMPORTED_MAX} each, first"
        )
    segments = list(islice(list_segments(draft.rows, partition), IMPORTED_MAX))
    for segment in segments:
        _drop_segment(draft, partition, segment)
    row = _counted(draft, partition, row, segments, -1)
    if _segments_of(row):
        return row
    for prefix in (keys.highest_copied_prefix(partition), keys.lost_range_prefix(partition)):
        for key, _ in list(draft.rows.scan(prefix, prefix_end(prefix))):
            draft.rows.delete(key)
    draft.rows.delete(keys.lineage_key(partition))
    draft.rows.delete(keys.partition_tombstone_key(partition))
    forget_expiry(draft, partition)
    is_new = row.mode_offset < 0 and draft.rows.get(keys.topic_name_key(partition)) is None
    # Not above the token of its rows, or they would count as from before the mode.
    row = PartitionRow(
        partition.topic,
        Mode.DELEGATED,
        mode_offset=record.since,
        claim=row.claim,
        claim_voided=row.claim is not None,
        gaps_allowed=row.gaps_allowed,
        unknown_tags=row.unknown_tags,
    )
    if is_new:
        draft.create_partition(partition, row)
    else:
        draft.put_partition(partition, row)
    return row


def _drop_segment(
    draft: Draft, partition: TopicIdPartition, segment: RemoteLogSegmentMetadata
) -> None:
    id_ = segment.segment_id.id
    if segment.state is SegmentState.COPY_SEGMENT_FINISHED:
        uncover(draft.rows, segment)
    else:
        draft.rows.delete(keys.unfinished_key(partition, id_))
    draft.rows.delete(keys.segment_key(id_))


def _counted(
    draft: Draft,
    partition: TopicIdPartition,
    row: PartitionRow,
    segments: Sequence[RemoteLogSegmentMetadata],
    sign: int,
) -> PartitionRow:
    """The partition's row with these segments added to its counters, or removed (`sign` -1)."""
    if not segments:
        return row
    states = Counter(segment.state for segment in segments)
    finished = SegmentState.COPY_SEGMENT_FINISHED
    draft.count(
        partition,
        row,
        copy_started=sign * states[SegmentState.COPY_SEGMENT_STARTED],
        copy_finished=sign * states[finished],
        delete_started=sign * states[SegmentState.DELETE_SEGMENT_STARTED],
        size_bytes=sign * sum(each.size_bytes for each in segments if each.state is finished),
    )
    after = read_partition_row(draft.rows, partition)
    assert after is not None, "it was just written"
    return after


def _put(
    draft: Draft,
    record: SegmentsImported,
    row: PartitionRow,
    segments: Sequence[RemoteLogSegmentMetadata],
) -> Outcome | None:
    """Write the segments; CONFLICT if one of them has a row already."""
    partition = record.partition
    finished = []
    for segment, value in zip(segments, record.rows, strict=True):
        id_ = segment.segment_id.id
        key = keys.segment_key(id_)
        if draft.rows.get(key) is not None:
            return conflict(f"segment {id_} has a row already: each segment has an id of its own")
        draft.rows.put(key, value)
        if draft.rows.get(keys.segment_tombstone_key(id_)) is not None:
            draft.rows.delete(keys.segment_tombstone_key(id_))  # the topic is authoritative
        if segment.state is SegmentState.COPY_SEGMENT_FINISHED:
            finished.append(segment)
        else:
            draft.rows.put(keys.unfinished_key(partition, id_), b"")
    _counted(draft, partition, row, segments, 1)
    cover_many(draft.rows, finished)
    ends: dict[int, int] = {}
    for segment in finished:
        for epoch, _, end in epoch_ranges(segment):
            ends[epoch] = max(end, ends.get(epoch, end))
    raise_highest_copied(
        draft, partition, [EpochRange(epoch, end, end) for epoch, end in ends.items()]
    )
    return None


def _claim(draft: Draft, record: SegmentsImported, row: PartitionRow) -> Claim:
    """A voided claim in this mode, below the epoch of any later claim: the leader of the newest
    known epoch can claim, older ones can't. Without a claim in this mode, the imported rows would
    count as history from before the mode.
    """
    epochs = [entries[-1].epoch for entries in (record.lineage, record.highest) if entries]
    if row.claim is not None:
        epochs.append(row.claim.leader_epoch)
    return Claim(
        token=record.since,
        leader_epoch=max(epochs, default=0) - 1,
        incarnation=IMPORTER,
        claim_number=0,
        timestamp_ms=draft.record_time_ms,
    )


def _end(draft: Draft, record: SegmentsImported) -> None:
    """Finish the partition's import with its last record."""
    partition = record.partition
    draft.rows.delete(keys.importing_key(partition))
    row = read_partition_row(draft.rows, partition)
    assert row is not None, "the first record wrote it"
    if not _segments_of(row) and not record.lineage and not record.highest:
        draft.remove_partition(partition)
        leave_the_name(draft, partition)
        draft.rows.delete(keys.adopted_key(partition))
        return
    raise_highest_copied(
        draft, partition, [EpochRange(epoch, end, end) for epoch, end in record.highest]
    )
    if record.lineage:
        draft.rows.put(keys.lineage_key(partition), values.encode_lineage(record.lineage))
    claim = _claim(draft, record, row)
    draft.put_partition(
        partition,
        row._replace(claim=claim, claim_voided=True, log_start_offset=record.log_start_offset),
    )
    if read_restart(draft.rows) is not None:
        draft.rows.put(keys.adopted_key(partition), values.encode_offset(draft.offset))

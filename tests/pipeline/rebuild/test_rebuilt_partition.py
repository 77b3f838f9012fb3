"""Rows of a partition made from its segments alone, against the log that they were copied from."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry, epoch_for_offset
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.rebuild.partition_rows import (
    RebuiltPartition,
    first_offsets,
    offsets_taken,
    partition_rows,
)
from rlm.retention.retention_plan import RetentionFacts, plan_retention
from rlmm.apply.apply import apply
from rlmm.apply.outcome import Verdict
from rlmm.metadata_log import CommittedRecord
from rlmm.partition_state import Mode, TopicPolicy, Totals
from rlmm.records.control_records import PartitionClaim
from rlmm.records.records import encode
from rlmm.rows import keys, queries
from rlmm.rows.coverage import covering, epoch_ranges
from rlmm.rows.resolved_lineage import ResolvedLineage, resolve_lineage
from rlmm.rows.restart_rows import restarted
from rlmm.rows.rows import MemoryRows
from rlmm.rows.values import encode_totals
from rlmm.segment import Incarnation, RemoteLogSegmentMetadata
from tests.pipeline.jobs.bucket_history import PARTITION, BucketHistory, a_segment
from tests.rlmm.recomputed_state import all_segments, coverage_rows, expected_coverage_rows

NODE = Incarnation(7, Uuid(b"d" * 16), 1)
END = 10_000


def rebuilt(
    segments: list[RemoteLogSegmentMetadata], *, accept_doubt: bool = False
) -> tuple[ResolvedLineage, RebuiltPartition]:
    lineage = resolve_lineage(segments, accept_doubt=accept_doubt)
    found = partition_rows(segments, lineage, Mode.SIDECAR, first_offset=1)
    assert found is not None
    return lineage, found


def state_rows(found: RebuiltPartition) -> MemoryRows:
    """As a new cluster begins with them."""
    totals = Totals(copy_finished=found.segments, size_bytes=found.size_bytes, partitions=1)
    logical = sorted([*found.rows, (keys.TOTALS_KEY, encode_totals(totals))])
    return MemoryRows(restarted(logical, end_offset=END))


def served_epochs(rows: MemoryRows, lineage: ResolvedLineage, end: int) -> dict[int, int]:
    """The epoch of what a reader gets, by offset."""
    found = {}
    for offset in range(end + 1):
        epoch = epoch_for_offset(lineage.epochs, offset)
        if epoch is None:
            epoch = lineage.epochs[0].epoch
        if covering(rows, PARTITION, epoch, offset) is not None:
            found[offset] = epoch
    return found


@given(st.integers(0, 2**32))
def test_what_is_served_is_what_the_last_leader_has(seed: int) -> None:
    history = BucketHistory(Random(seed)).run()
    lineage, found = rebuilt(history.segments)
    rows = state_rows(found)
    assert coverage_rows(rows) == expected_coverage_rows(rows)
    served = served_epochs(rows, lineage, len(history.log) - 1)
    assert all(history.log[offset] == epoch for offset, epoch in served.items())
    holes = set(range(history.served_to + 1)) - served.keys()
    assert not holes or lineage.in_doubt
    lost = {at for each in found.lost for at in range(each.start, each.end + 1)}
    assert lost == {offset for offset in holes if offset > found.log_start_offset}


@given(st.integers(0, 2**32), st.floats(0, 0.6))
def test_no_claim_and_no_retention_takes_an_only_copy(seed: int, missing: float) -> None:
    history = BucketHistory(Random(seed)).run()
    drop = Random(seed + 1)
    left = [each for each in history.segments if drop.random() >= missing]
    lineage = resolve_lineage(left)
    found = partition_rows(left, lineage, Mode.SIDECAR, first_offset=1)
    if found is None:
        return
    rows = state_rows(found)
    for claimed in (False, True):
        if claimed:
            claim(rows, history)
        state = queries.partition_state(rows, PARTITION)
        assert state is not None
        facts = RetentionFacts(
            state, all_segments(rows), TopicPolicy(), now_ms=2**50, percent_max=100.0
        )
        going = {each.row.segment_id.id for each in plan_retention(facts).deletions}
        assert claimed or not going
        kept = [each for each in left if each.segment_id.id not in going]
        for each in left:
            if each.segment_id.id in going:
                right = {record for record in held(each) if is_right(record, history)}
                assert right <= {record for other in kept for record in held(other)}


def held(segment: RemoteLogSegmentMetadata) -> set[tuple[int, int]]:
    """(epoch, offset), which is what a record is."""
    return {
        (each.epoch, at) for each in epoch_ranges(segment) for at in range(each.start, each.end + 1)
    }


def is_right(record: tuple[int, int], history: BucketHistory) -> bool:
    epoch, offset = record
    return offset < len(history.log) and history.log[offset] == epoch


def claim(rows: MemoryRows, history: BucketHistory) -> None:
    """The last leader's, with its whole checkpoint; it is accepted whatever the rebuilt lineage."""
    lineage = history.lineage()
    record = encode(
        PartitionClaim(
            PARTITION,
            Mode.SIDECAR,
            lineage[-1][0],
            NODE,
            1,
            tuple(EpochEntry(*each) for each in lineage),
        )
    )
    committed = CommittedRecord(END, 1, 2**41, record.control_type, record.value)
    applied = apply(rows, committed)
    assert applied.outcome.verdict is Verdict.ACCEPTED, applied.outcome
    rows.write(applied.writes)


def test_a_diverged_tail_is_not_served_and_a_diverged_segment_has_no_row() -> None:
    first = a_segment(1, 0, 79, (2, 0))
    diverged = a_segment(2, 80, 99, (2, 80))
    second = a_segment(3, 40, 120, (2, 40), (3, 50))
    lineage, found = rebuilt([first, diverged, second])
    assert lineage.epochs == ((2, 0), (3, 50))
    assert lineage.diverged == {diverged.segment_id.id}
    assert lineage.cut == {first.segment_id.id}
    rows = state_rows(found)
    assert {each.segment_id.id for each in all_segments(rows)} == {
        first.segment_id.id, second.segment_id.id
    }  # fmt: skip
    assert found.lost == ()


def test_where_a_contradiction_begins_nobody_knows_so_the_older_copy_waits_for_somebody() -> None:
    older = a_segment(1, 0, 79, (2, 0))
    newer = a_segment(2, 60, 99, (3, 60))  # epoch 3 may have begun at 50
    lineage, found = rebuilt([older, newer])
    assert lineage.in_doubt == {older.segment_id.id}
    assert (found.log_start_offset, found.segments) == (60, 1)
    lineage, found = rebuilt([older, newer], accept_doubt=True)
    assert lineage.epochs == ((2, 0), (3, 60))
    assert (found.log_start_offset, found.segments, found.lost) == (0, 2, ())
    # A third copy, of a later leader, that has epoch 2 right below settles it.
    lineage, found = rebuilt([older, newer, a_segment(3, 50, 69, (2, 50), (3, 60))])
    assert lineage.in_doubt == frozenset()
    assert lineage.epochs == ((2, 0), (3, 60))


def test_a_hole_is_recorded_as_lost() -> None:
    _, found = rebuilt([a_segment(1, 10, 19, (1, 10)), a_segment(2, 30, 39, (1, 30))])
    assert [(each.start, each.end) for each in found.lost] == [(20, 29)]
    assert (found.log_start_offset, found.highest_copied) == (10, (39, 1))


def test_metadata_offsets_of_a_partition_are_its_own() -> None:
    _, found = rebuilt([a_segment(2, 10, 19, (1, 10)), a_segment(1, 0, 9, (1, 0))])
    rows = state_rows(found)
    assert {each.segment_id.id[-1]: each.finished_at for each in all_segments(rows)} == {1: 2, 2: 3}
    state = queries.partition_state(rows, PARTITION)
    assert state is not None
    assert state.mode_offset == 1 + offsets_taken(2) - 1
    assert state.claim is None
    assert state.adopting
    assert state.next_offset == 20


def test_nothing_in_the_lineage_makes_no_partition() -> None:
    doubtful = resolve_lineage([a_segment(1, 0, 9, (1, 0))])
    assert partition_rows([], doubtful, Mode.SIDECAR, first_offset=0) is None


def test_what_another_manager_wrote_is_neither_claimed_nor_expired() -> None:
    history = BucketHistory(Random(1)).run()
    lineage = resolve_lineage(history.segments)
    found = partition_rows(history.segments, lineage, Mode.READ_ONLY, first_offset=1)
    assert found is not None
    rows = state_rows(found)
    checkpoint = tuple(EpochEntry(*each) for each in history.lineage())
    record = encode(
        PartitionClaim(PARTITION, Mode.SIDECAR, checkpoint[-1].epoch, NODE, 1, checkpoint)
    )
    committed = CommittedRecord(END, 1, 2**41, record.control_type, record.value)
    assert apply(rows, committed).outcome.verdict is Verdict.INVALID
    state = queries.partition_state(rows, PARTITION)
    assert state is not None
    everything = TopicPolicy(retention_ms=0, retention_bytes=0)
    plan = plan_retention(
        RetentionFacts(state, all_segments(rows), everything, now_ms=2**50, percent_max=100.0)
    )
    assert plan.held_back is not None
    assert (plan.move_now, plan.delete_now) == (None, ())


@pytest.mark.parametrize("older", [Uuid(b"a" * 16), Uuid(b"z" * 16)])
def test_of_topics_of_one_name_the_newest_is_the_one_that_copied_last(older: Uuid) -> None:
    newer = Uuid(b"m" * 16)
    copied_ms = {older: 1_000, newer: 2_000}
    begins, end = first_offsets(
        [(str(id_), number, 3, at - number) for id_, at in copied_ms.items() for number in (0, 1)]
    )
    met = [
        queries.MetPartition(TopicIdPartition("orders", Uuid.parse(id_), number), at)
        for (id_, number), at in begins.items()
    ]
    assert {each.topic_id for each in queries.newest_incarnation(met)} == {newer}
    taken = offsets_taken(3)
    assert sorted(begins.values()) == [0, taken, 2 * taken, 3 * taken]
    assert end == 4 * taken

"""What Kafka's own manager knows of a partition is what the metadata log knows after an import."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafka_formats.leader_epoch_checkpoint import EpochEntry
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.delegated.older_history import is_kept
from rlm.format.custom_metadata import CustomMetadata
from rlm.migration.comparing import Difference, Wrong, compare
from rlm.migration.import_plan import import_problems, imported_lineage, plan_import
from rlm.migration.kafka_cache import KafkaCache
from rlm.migration.log_side import LogSide
from rlmm.apply import imports
from rlmm.apply.outcome import Verdict
from rlmm.migration_phase import MigrationPhase
from rlmm.partition_state import Mode, PartitionState
from rlmm.records.control_records import SegmentsImported
from rlmm.records.fixed_layout import decode_segment_row, encode_segment_row
from rlmm.rows import queries, reads
from rlmm.rows.coverage import covered_ranges
from rlmm.rows.imported import as_imported
from rlmm.rows.queries import SegmentAnswer
from rlmm.rows.rows import MemoryRows
from rlmm.rows.values import Covered
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState
from tests.rlm.migration.kafka_history import history_of, without
from tests.rlmm.apply.migration_world import MigrationWorld
from tests.rlmm.recomputed_state import (
    coverage_rows,
    expected_coverage_rows,
    kept_counts,
    recounted,
)
from tests.rlmm.state_world import ORDERS

KAFKA, SWITCHING, QUORUM = MigrationPhase.KAFKA, MigrationPhase.SWITCHING, MigrationPhase.QUORUM
COPYING, COPIED, DELETING, DELETED = SegmentState
HISTORIES = 120
MISTAKEN = 60


@dataclass
class Reads:
    """The manager's reads, over rows in memory."""

    rows: MemoryRows

    def partition_state(self, tip: TopicIdPartition, /) -> PartitionState | None:
        return queries.partition_state(self.rows, tip)

    def list_remote_log_segments(
        self, tip: TopicIdPartition, /
    ) -> Iterator[RemoteLogSegmentMetadata]:
        return queries.list_segments(self.rows, tip)

    def remote_log_segment_metadata(
        self, tip: TopicIdPartition, leader_epoch: int, offset: int, /
    ) -> SegmentAnswer | None:
        return queries.segment_for_offset(self.rows, tip, leader_epoch, offset)

    def highest_offset_for_epoch(self, tip: TopicIdPartition, leader_epoch: int, /) -> int | None:
        return queries.highest_offset_for_epoch(self.rows, tip, leader_epoch)

    def highest_recorded(self, tip: TopicIdPartition, leader_epoch: int, /) -> int | None:
        return reads.highest_recorded(self.rows, tip, leader_epoch)

    def coverage(
        self, tip: TopicIdPartition, leader_epoch: int, start: int, end: int, /
    ) -> Iterator[Covered]:
        return covered_ranges(self.rows, tip, leader_epoch, start, end)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> MigrationWorld:
    """Records bring few segments, so that there are several of a partition."""
    for module in ("rlmm.apply.imports", "rlm.migration.import_plan"):
        monkeypatch.setattr(f"{module}.IMPORTED_MAX", 4)
    assert imports.IMPORTED_MAX == 4
    return switching()


def switching() -> MigrationWorld:
    world = MigrationWorld()
    world.phases(KAFKA, SWITCHING)
    return world


def the_plan(world: MigrationWorld, cache: KafkaCache | None) -> list[SegmentsImported]:
    state = queries.partition_state(world.rows, ORDERS)
    recorded = 0 if state is None else len(list(queries.list_segments(world.rows, ORDERS)))
    return list(plan_import(ORDERS, cache, since=world.migration.since, recorded=recorded))


def imported(world: MigrationWorld, cache: KafkaCache | None) -> None:
    for record in the_plan(world, cache):
        assert world.verdict(record) in (Verdict.ACCEPTED, Verdict.NO_EFFECT)


def check_state(rows: MemoryRows) -> None:
    """Coverage and counters are what the segment rows say."""
    assert coverage_rows(rows) == expected_coverage_rows(rows)
    assert kept_counts(rows) == recounted(rows)


def differences(world: MigrationWorld, cache: KafkaCache | None) -> list[Difference]:
    return list(compare(Reads(world.rows), ORDERS, cache, since=world.migration.since))


def test_random_histories_are_equal_after_an_import(world: MigrationWorld) -> None:
    for seed in range(HISTORIES):
        cache = history_of(seed).cache
        assert import_problems(ORDERS, cache) == []
        imported(world, cache)  # over the one before
        assert differences(world, cache) == [], seed
        check_state(world.rows)
        if seed % 50 == 0:
            world = switching()
    assert differences(world, None) != []
    world.accept(*the_plan(world, None))
    assert differences(world, None) == []


async def test_an_import_over_another_one_does_not_read_what_is_recorded(
    world: MigrationWorld,
) -> None:
    """A partition may have 100,000 segments: to decode them takes the node's event loop seconds, in
    which it loses the quorum's leadership, and the next leader does the same.
    """

    async def record_move(record: SegmentsImported, *, deadline_s: float) -> None:
        assert world.verdict(record) is Verdict.ACCEPTED

    metadata = SimpleNamespace(rows=lambda: world.rows, record_move=record_move)
    side = LogSide(cast("Any", metadata), "node 1", cast("Any", None))
    for seed in (7, 8, 9):
        cache = history_of(seed, steps=60).cache
        assert len(cache.rows) > imports.IMPORTED_MAX
        await side.bring(ORDERS, cache, world.migration.since)
        assert differences(world, cache) == []


def test_a_partition_of_the_metadata_log_alone_is_a_difference(world: MigrationWorld) -> None:
    world.phases(QUORUM)
    world.claim((4, 0), mode=Mode.DELEGATED)
    world.copy(1, 0, 9, [(4, 0)])
    (difference,) = compare(Reads(world.rows), ORDERS, None, since=None)
    assert (difference.wrong, difference.text) == (Wrong.PARTITION, "only the metadata log has it")


def test_a_claim_alone_is_nothing_that_the_topic_lacks(world: MigrationWorld) -> None:
    """Each partition of a new topic is claimed at once, and copied when its first segment rolls."""
    world.phases(QUORUM)
    world.claim((4, 0), mode=Mode.DELEGATED)
    assert list(compare(Reads(world.rows), ORDERS, None, since=None)) == []
    world.accept(added := world.an_add(1, 0, 9, [(4, 0)]))
    assert [each.text for each in compare(Reads(world.rows), ORDERS, None, since=None)]
    world.accept(world.a_delete(1, COPYING), world.a_delete_finish(1))
    cache = KafkaCache()
    cache.add(without(added))
    cache.update(replace(world.a_delete(1, COPYING), token=-1, writer=None))
    cache.update(replace(world.a_delete_finish(1), token=-1, writer=None))
    assert list(compare(Reads(world.rows), ORDERS, cache, since=None)) == []


Change = Callable[[list[SegmentsImported]], list[SegmentsImported] | None]


def _on_row(
    change: Callable[[RemoteLogSegmentMetadata], RemoteLogSegmentMetadata | None],
) -> Change:
    """Change the first row that can be changed so, or leave it out where None is returned."""

    def changed(plan: list[SegmentsImported]) -> list[SegmentsImported] | None:
        rows = [decode_segment_row(row) for row in plan[-1].rows]
        for at, row in enumerate(rows):
            other = change(row)
            if other == row:
                continue
            encoded = [encode_segment_row(each) for each in rows]
            encoded[at : at + 1] = [] if other is None else [encode_segment_row(other)]
            return [*plan[:-1], replace(plan[-1], rows=tuple(encoded))]
        return None

    return changed


def _in_state(before: SegmentState, after: SegmentState) -> Change:
    return _on_row(
        lambda row: (
            row
            if row.state is not before
            else as_imported(replace(without(row), state=after), row.token)
        )
    )


def _end(change: Callable[[SegmentsImported], SegmentsImported]) -> Change:
    def changed(plan: list[SegmentsImported]) -> list[SegmentsImported] | None:
        last = change(plan[-1])
        return None if last == plan[-1] else [*plan[:-1], last]

    return changed


def _shift(epochs: tuple[EpochEntry, ...], by: int) -> tuple[EpochEntry, ...]:
    """The last of two epochs or more begins elsewhere."""
    if len(epochs) < 2 or epochs[-1].start_offset + by <= epochs[-2].start_offset:
        return epochs
    *kept, last = epochs
    return (*kept, EpochEntry(last.epoch, last.start_offset + by))


MISTAKES: dict[str, Change] = {
    "a segment is left out": _on_row(lambda _: None),
    "a finished copy is not": _in_state(COPIED, COPYING),
    "a deletion is forgotten": _in_state(DELETING, COPIED),
    "an unfinished copy counts": _in_state(COPYING, COPIED),
    "custom metadata is dropped": _on_row(lambda row: replace(row, custom_metadata=None)),
    "a size is another": _on_row(lambda row: replace(row, size_bytes=row.size_bytes + 1)),
    "an end is one too low": _on_row(
        lambda row: (
            row
            if row.end_offset <= row.leader_epochs[-1][1]
            else replace(row, end_offset=row.end_offset - 1)
        )
    ),
    "an event time is another": _on_row(
        lambda row: replace(row, event_timestamp_ms=row.event_timestamp_ms + 1)
    ),
    "a transaction index is said to be there": _on_row(
        lambda row: replace(row, txn_index_empty=False)
    ),
    "highest offsets of deleted segments are forgotten": _end(lambda r: replace(r, highest=())),
    "a highest offset is one too high": _end(
        lambda r: replace(
            r, highest=(*r.highest[:-1], *(EpochEntry(e, o + 1) for e, o in r.highest[-1:]))
        )
    ),
    "an epoch begins later": _end(lambda r: replace(r, lineage=_shift(r.lineage, 1))),
    "an epoch begins earlier": _end(lambda r: replace(r, lineage=_shift(r.lineage, -1))),
    "the newest epoch is missing": _end(lambda r: replace(r, lineage=r.lineage[:-1])),
    "there is an epoch too many": _end(
        lambda r: replace(
            r,
            lineage=(*r.lineage, *(EpochEntry(e + 99, o + 1) for e, o in r.lineage[-1:])),
        )
    ),
}
HARMLESS = frozenset(
    {"highest offsets of deleted segments are forgotten", "an epoch begins earlier"}
)
"""Not a mistake in each history: they may be those of segments that are there, and where an epoch
begins, nothing may be served.
"""


@pytest.mark.parametrize("mistake", MISTAKES)
def test_planted_mistakes_are_found(mistake: str) -> None:
    tried = missed = 0
    for seed in range(MISTAKEN):
        world, cache = switching(), history_of(seed).cache
        plan = MISTAKES[mistake](the_plan(world, cache))
        if plan is None:
            continue
        tried += 1
        verdicts = {world.verdict(record) for record in plan}
        missed += verdicts == {Verdict.ACCEPTED} and not differences(world, cache)
    assert tried > 9
    assert missed == 0 or (mistake in HARMLESS and missed < tried)


def test_a_record_that_is_lost_or_comes_twice_is_found(world: MigrationWorld) -> None:
    cache = history_of(7, steps=60).cache
    plan = the_plan(world, cache)
    assert len(plan) > 2
    for at in range(len(plan)):
        other = switching()
        verdicts = [other.verdict(record) for record in (*plan[:at], *plan[at + 1 :])]
        ended = set(verdicts) == {Verdict.ACCEPTED}
        assert not ended or other.verdict(other.a_phase(QUORUM)) is Verdict.CONFLICT
    twice = [record for record in plan for _ in range(2)]
    world.accept(plan[0], plan[0], *plan[1:])
    assert differences(world, cache) == []
    assert {world.verdict(record) for record in twice[2:]} == {Verdict.CONFLICT}


def test_an_import_goes_on_as_if_the_node_had_recorded_it() -> None:
    """The broker claims, reads what it read before, and deletes: nothing is held as older."""
    for seed in range(HISTORIES):
        world, history = switching(), history_of(seed)
        cache = history.cache
        imported(world, cache)
        world.phases(QUORUM)
        epoch = history.lineage[-1].epoch
        served = {
            (each, offset): found
            for each, start in history.lineage
            for offset in range(start, history.end, 7)
            if (found := cache.look_up(each, offset)) is not None
            and history.lineage == imported_lineage_up_to(history.lineage, each, offset)
        }
        world.claim(*history.lineage, mode=Mode.DELEGATED)
        for (each, offset), row in served.items():
            got = queries.segment_for_offset(world.rows, ORDERS, each, offset)
            assert got is not None, (seed, each, offset, row)
        state = world.state
        for row in queries.list_segments(world.rows, ORDERS):
            assert not is_kept(row, state), seed
            number = int.from_bytes(row.segment_id.id, "big")
            if row.state is not DELETING:
                world.accept(world.a_delete(number, row.state))
            world.accept(world.a_delete_finish(number))
        start = history.end
        world.copy(9_999, start, start + 9, [(epoch, start)])
        assert world.state.segment_count == 1
        check_state(world.rows)


def imported_lineage_up_to(
    lineage: tuple[EpochEntry, ...], epoch: int, offset: int
) -> tuple[EpochEntry, ...]:
    """The leader's own epochs, if `offset` is of `epoch` in them; else nothing."""
    of = [entry.epoch for entry in lineage if entry.start_offset <= offset]
    return lineage if of and of[-1] == epoch else ()


def test_a_segment_that_the_log_would_refuse_is_told_before() -> None:
    cache = history_of(3, steps=30).cache
    assert imported_lineage(cache)
    bad = next(iter(cache.rows.values()))
    strange = KafkaCache()
    strange.add(replace(bad, state=COPYING, custom_metadata=b"x" * 5_000))
    (problem,) = import_problems(ORDERS, strange)
    assert "custom metadata" in problem
    (problem,) = import_problems(replace(ORDERS, topic="a/b"), strange)
    assert "a/b" in problem


def test_before_a_way_back_rows_of_the_metadata_log_are_compared() -> None:
    """What the node recorded since the switch, told to the topic in Kafka's words."""
    for seed in range(20):
        world, history = switching(), history_of(seed, steps=20)
        cache, since = history.cache, world.migration.since
        imported(world, cache)
        world.phases(QUORUM)
        world.claim(*history.lineage, mode=Mode.DELEGATED)
        epoch, start = history.lineage[-1].epoch, history.end
        added = world.an_add(9_999, start, start + 9, [(epoch, start)])
        world.accept(added, replace(world.a_finish(9_999), max_timestamp_ms=7))
        reads = Reads(world.rows)
        (missing, *_) = compare(reads, ORDERS, cache, since=None)
        assert (missing.wrong, since) == (Wrong.PARTITION, 2)
        cache.add(without(added))
        cache.update(replace(world.a_finish(9_999), token=-1, writer=None))
        assert list(compare(reads, ORDERS, cache, since=None)) == []
        cache.update(world.a_delete(9_999))
        assert Wrong.SEGMENT in {each.wrong for each in compare(reads, ORDERS, cache, since=None)}


def test_there_is_no_way_back_over_what_our_storage_manager_copied() -> None:
    """Without it nobody can read such a segment, and it needs the metadata log to be the truth."""
    world, history = switching(), history_of(3, steps=20)
    cache, since = history.cache, world.migration.since
    imported(world, cache)
    world.phases(QUORUM)
    world.claim(*history.lineage, mode=Mode.DELEGATED)
    epoch, start = history.lineage[-1].epoch, history.end
    added = world.an_add(9_999, start, start + 9, [(epoch, start)])
    ours = CustomMetadata("main", 1, 1, 1, 1, 1, 1).encode()
    finish = replace(world.a_finish(9_999), custom_metadata=ours)
    world.accept(added, finish)
    cache.add(without(added))
    cache.update(replace(finish, token=-1, writer=None))
    (told,) = compare(Reads(world.rows), ORDERS, cache, since=None)
    assert (told.wrong, since) == (Wrong.STORAGE, 2)
    assert "1 segments, such as " in told.text

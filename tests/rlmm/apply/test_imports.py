"""Segments of Kafka's own metadata topic become rows of a delegated partition."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlmm.apply.imports import IMPORTED_MAX
from rlmm.apply.outcome import Verdict
from rlmm.migration_phase import MigrationPhase
from rlmm.partition_state import Mode
from rlmm.records.control_records import SegmentsImported
from rlmm.rows import keys
from rlmm.rows.imported import IMPORTER, as_imported, is_row_of
from rlmm.rows.queries import highest_offset_for_epoch
from rlmm.rows.reads import read_segment, read_totals
from rlmm.segment import SegmentState
from rlmm.view.view import digest_of
from tests.rlmm.apply.migration_world import MigrationWorld
from tests.rlmm.state_world import NODE_2, PAYMENTS, epochs, segment_uuid

NONE, KAFKA, SWITCHING, QUORUM, DONE, BACK = MigrationPhase
COPYING, COPIED, DELETING, _ = SegmentState


@pytest.fixture
def world() -> MigrationWorld:
    world = MigrationWorld()
    world.phases(KAFKA, SWITCHING)
    return world


def two_segments(world: MigrationWorld) -> SegmentsImported:
    return world.an_import(
        world.of_topic(1, 0, 99, custom_metadata=b"foreign"), world.of_topic(2, 100, 199)
    )


def test_an_import_leaves_what_the_topic_tells(world: MigrationWorld) -> None:
    rows = [
        world.of_topic(1, 0, 99, custom_metadata=b"foreign"),
        world.of_topic(2, 100, 199, ((4, 100), (6, 150))),
        world.of_topic(3, 200, 299, ((6, 200),), state=COPYING),
        world.of_topic(4, 0, 50, state=DELETING),
    ]
    world.accept(
        world.an_import(*rows, lineage=epochs((4, 0), (6, 150)), highest=epochs((3, 70), (6, 260)))
    )
    state = world.state
    assert (state.mode, state.claim, state.segment_count) == (Mode.DELEGATED, None, 2)
    assert (state.lineage, state.log_start_offset) == (epochs((4, 0), (6, 150)), 0)
    assert state.highest_copied == (260, 6), "also of what is deleted by now"
    assert highest_offset_for_epoch(world.rows, world.partition, 4) == 149
    assert sorted(world.listed()) == [1, 2, 3, 4]
    assert [world.serving(4, 0), world.serving(4, 149), world.serving(6, 150)] == [1, 2, 2]
    assert world.serving(6, 200) is None, "its copy is not finished"
    first = read_segment(world.rows, segment_uuid(1))
    assert first is not None
    assert first.custom_metadata == b"foreign"
    assert first.writer == IMPORTER
    assert read_totals(world.rows)[:4] == (1, 2, 1, 2_000)


def test_an_import_that_is_repeated_ends_the_same(world: MigrationWorld) -> None:
    once = MigrationWorld()
    once.phases(KAFKA, SWITCHING)
    rows = [world.of_topic(n, 100 * n, 100 * n + 99, ((4, 100 * n),)) for n in range(1, 6)]
    parts = [world.an_import(*rows[:2], last=False), world.an_import(*rows[2:], at=2)]
    once.accept(*parts)
    world.accept(parts[0], parts[0], *parts, *parts)
    ours, theirs = (
        digest_of((key, value) for key, value in each.rows.items() if key[0] not in _ABOUT_TIME)
        for each in (world, once)
    )
    assert ours == theirs


_ABOUT_TIME = (keys.RowKind.RECORD_TIME, keys.RowKind.TOPIC_NAME)


def test_a_record_follows_the_one_before(world: MigrationWorld) -> None:
    rows = [world.of_topic(n, 100 * n, 100 * n + 99) for n in range(4)]
    assert world.verdict(world.an_import(rows[1], at=1)) is Verdict.CONFLICT
    world.accept(world.an_import(rows[0], last=False))
    assert world.verdict(world.an_import(rows[2], at=2)) is Verdict.CONFLICT
    second = world.an_import(rows[1], at=1, last=False)
    world.accept(second)
    assert world.verdict(second) is Verdict.CONFLICT
    assert world.verdict(world.an_import(rows[1], at=2)) is Verdict.CONFLICT, "a row twice"
    assert world.verdict(world.a_phase(QUORUM)) is Verdict.CONFLICT, "an import is open"
    world.accept(world.an_import(rows[2], at=2))
    world.phases(QUORUM)


def test_an_import_is_of_the_standing_switch(world: MigrationWorld) -> None:
    late = two_segments(world)
    world.phases(KAFKA)
    assert world.verdict(late) is Verdict.CONFLICT
    world.phases(SWITCHING)
    assert world.verdict(late) is Verdict.CONFLICT
    world.accept(two_segments(world))
    on_time = two_segments(world)
    world.phases(QUORUM)
    assert world.verdict(on_time) is Verdict.CONFLICT


def test_an_import_after_a_way_back_drops_what_is_recorded(world: MigrationWorld) -> None:
    world.accept(two_segments(world))
    world.phases(QUORUM)
    world.claim((4, 0), mode=Mode.DELEGATED)
    world.copy(3, 200, 299, [(4, 200)])
    world.accept(world.a_delete(1), world.a_delete_finish(1), world.an_add(5, 300, 399, [(4, 300)]))
    world.phases(BACK, KAFKA, SWITCHING)
    deleted_by_us = world.of_topic(1, 0, 99)
    world.accept(world.an_import(deleted_by_us, world.of_topic(7, 100, 149)))
    assert sorted(world.listed()) == [1, 7]
    assert world.rows.get(keys.segment_tombstone_key(segment_uuid(1))) is None
    assert [world.serving(4, 0), world.serving(4, 149), world.serving(4, 150)] == [1, 7, None]
    assert world.state.highest_copied == (149, 4)
    assert world.state.claim is None
    assert world.state.last_claim is not None, "no older epoch claims it now"
    world.phases(QUORUM)
    older = world.a_claim([(3, 0)], node=NODE_2, mode=Mode.DELEGATED)
    assert world.verdict(older) is Verdict.FENCED


def test_an_empty_import_removes_the_partition(world: MigrationWorld) -> None:
    nothing = world.an_import()
    assert world.verdict(nothing) is Verdict.NO_EFFECT
    before = [row for row in world.rows.items() if row[0][0] != keys.RowKind.RECORD_TIME]
    world.accept(two_segments(world))
    world.accept(nothing)
    after = [row for row in world.rows.items() if row[0][0] != keys.RowKind.RECORD_TIME]
    assert [row for row in after if row[0] != keys.TOTALS_KEY] == before
    assert read_totals(world.rows) == (0, 0, 0, 0, 0)


def test_many_segments_are_dropped_in_parts(world: MigrationWorld) -> None:
    size = IMPORTED_MAX + 5
    rows = [world.of_topic(n, n, n) for n in range(size)]
    world.accept(
        world.an_import(*rows[:IMPORTED_MAX], last=False),
        world.an_import(*rows[IMPORTED_MAX:], at=IMPORTED_MAX),
    )
    assert world.state.segment_count == size
    assert world.verdict(world.an_import()) is Verdict.CONFLICT
    part = SegmentsImported(world.partition, world.migration.since, 0, last=False)
    world.accept(part)
    assert world.state.segment_count == 5
    assert world.verdict(world.a_phase(QUORUM)) is Verdict.CONFLICT
    world.accept(world.an_import(*rows[:2]))
    assert sorted(world.listed()) == [0, 1]


def test_a_partition_that_the_node_copies_itself_is_not_imported(world: MigrationWorld) -> None:
    world.leads((4, 0))
    assert world.verdict(two_segments(world)) is Verdict.CONFLICT


def test_what_is_no_row_of_this_import_is_invalid(world: MigrationWorld) -> None:
    good = two_segments(world)
    strange = [
        replace(good, rows=(b"not a row",)),
        replace(good, rows=(good.rows[0][:-1],)),
        replace(good, partition=PAYMENTS),
        replace(good, at=-1),
        replace(good, rows=good.rows * IMPORTED_MAX),
        replace(good, log_start_offset=-2),
        replace(good, lineage=epochs((4, 0), (4, 9))),
        replace(good, highest=epochs((4, 9), (3, 0))),
        replace(good, highest=epochs((-1, 9))),
        replace(good, last=False),
        world.an_import(world.of_topic(1, 9, 3)),
        replace(good, since=good.since + 1),
    ]
    for record in strange:
        assert not world.changed_by(record), record
        assert world.verdict(record) in (Verdict.INVALID, Verdict.CONFLICT), record


def test_a_segment_of_the_topic_keeps_every_other_field(world: MigrationWorld) -> None:
    row = replace(
        world.of_topic(1, 0, 99, ((4, 0), (6, 50)), state=COPIED, custom_metadata=b"foreign"),
        txn_index_empty=True, unknown_tags=((3, b"new"),), nested_unknown_tags=((0, ((1, b"a"),)),),
    )  # fmt: skip
    ours = {"token": 9, "writer": IMPORTER, "upload_deadline_ms": 0}
    assert as_imported(row, 9) == replace(row, **ours, finished_at=9)  # type: ignore[arg-type]
    assert is_row_of(as_imported(row, 9), 9)
    copying = replace(row, state=COPYING)
    assert as_imported(copying, 9) == replace(copying, **ours)  # type: ignore[arg-type]
    assert not is_row_of(replace(as_imported(copying, 9), finished_at=9), 9)

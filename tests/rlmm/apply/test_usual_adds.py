"""Runs of usual adds come to what the general rule comes to, record by record and byte by byte."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.apply.apply import Applied, apply
from rlmm.apply.outcome import Outcome
from rlmm.apply.purge import TOMBSTONE_KEPT_MS
from rlmm.apply.usual_adds import UsualAdds, judged
from rlmm.metadata_log import CommittedRecord
from rlmm.records.control_records import ClaimReset, ControlRecordType
from rlmm.records.fixed_layout import encode_segment_row
from rlmm.records.records import MetadataRecord, encode
from rlmm.rows.rows import MemoryRows, OverlayRows
from rlmm.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState
from tests.rlmm.apply.test_segments import ADDS
from tests.rlmm.state_world import NODE_2, ORDERS, PAYMENTS, World, segment_uuid

HOUR_MS = 3_600_000


def step(
    rows: MemoryRows, records: Iterable[CommittedRecord]
) -> list[tuple[Outcome, TopicIdPartition | None]]:
    overlay = OverlayRows(rows)
    found = [(outcome, partition) for _, outcome, partition in judged(overlay, records)]
    changes = overlay.changes()
    assert all(rows.get(key) == before for key, before, _ in changes), "a digest would be wrong"
    rows.write((key, after) for key, _, after in changes)
    return found


def one_by_one(rows: MemoryRows, records: Iterable[CommittedRecord]) -> list[Applied]:
    found = []
    for record in records:
        found.append(apply(rows, record))
        rows.write(found[-1].writes)
    return found


def check(before: MemoryRows, records: Sequence[CommittedRecord], sizes: Sequence[int]) -> None:
    general, usual = MemoryRows(before.items()), MemoryRows(before.items())
    expected = one_by_one(general, records)
    at, turn, found = 0, 0, []
    while at < len(records):
        size = sizes[turn % len(sizes)]
        found += step(usual, records[at : at + size])
        at, turn = at + size, turn + 1
    assert found == [(each.outcome, each.partition) for each in expected]
    assert usual.items() == general.items()


def claimed() -> World:
    """Epoch 4 from 100, segment 1 finished, and one that is deleted, with its tombstone."""
    world = World()
    world.leads((4, 100))
    world.copy(1, 100, 199, [(4, 100)])
    world.accept(
        world.an_add(4, 200, 249, [(4, 200)]), world.a_delete(4, SegmentState.COPY_SEGMENT_STARTED)
    )
    world.accept(world.a_delete_finish(4))
    return world


def usual_add(world: World, number: int, *, no_index: bool = True) -> RemoteLogSegmentMetadata:
    return replace(world.an_add(number, 200, 299, [(4, 200)]), txn_index_empty=no_index)


def record(world: World, value: bytes, *, after_ms: int = 0, offset: int = 1) -> CommittedRecord:
    return CommittedRecord(world.offset + offset, 1, world.time_ms + after_ms, None, value)


@pytest.mark.parametrize("no_index", [False, True])
def test_an_add_as_a_copy_makes_it_is_a_usual_one(no_index: bool) -> None:
    world = claimed()
    overlay = OverlayRows(world.rows)
    usual = UsualAdds(overlay)
    value = encode_segment_row(usual_add(world, 9, no_index=no_index))
    assert usual.take(record(world, value)) == ORDERS
    usual.settle()
    assert overlay.writes() == apply(world.rows, record(world, value)).writes
    assert usual.take(record(world, value, offset=2)) is None


@pytest.mark.parametrize("name", ADDS)
def test_any_other_add_is_judged_as_ever(name: str) -> None:
    world = claimed()
    world.accept(world.an_add(2, 200, 299, [(4, 200)]))
    values = [encode(each).value for each in (usual_add(world, 90), ADDS[name][1](world))]
    values.append(encode(usual_add(world, 91)).value)
    records = [record(world, value, offset=at) for at, value in enumerate(values, 1)]
    check(world.rows, records, [3])


@pytest.mark.parametrize("no_index", [False, True])
def test_a_changed_byte_anywhere_changes_what_it_changes_by_the_rule(no_index: bool) -> None:
    world = claimed()
    first, last = usual_add(world, 90), usual_add(world, 91)
    value = encode_segment_row(usual_add(world, 9, no_index=no_index))
    cut = [value[:at] for at in range(len(value))] + [value + b"\0"]
    changed = [
        bytes((*value[:at], value[at] ^ bits, *value[at + 1 :]))
        for at in range(len(value))
        for bits in (0x01, 0x02, 0x80, 0xFF, value[at])
    ]
    for other in (*cut, *changed):
        values = (encode_segment_row(first), other, encode_segment_row(last))
        records = [record(world, each, offset=at) for at, each in enumerate(values, 1)]
        check(world.rows, records, [3])


def test_a_purge_that_is_due_happens_at_the_same_record() -> None:
    world = claimed()
    for hours in range(TOMBSTONE_KEPT_MS // HOUR_MS - 1):
        world.time_ms += HOUR_MS
        world.accept(usual_add(world, 1_000 + hours))
    values = [encode_segment_row(usual_add(world, number)) for number in range(20, 26)]
    times = (0, HOUR_MS - 1, HOUR_MS, HOUR_MS - 5, 2 * HOUR_MS, 9 * HOUR_MS)
    records = [
        record(world, value, offset=at, after_ms=after_ms)
        for at, (value, after_ms) in enumerate(zip(values, times, strict=True), 1)
    ]
    for count in range(1, len(records) + 1):
        check(world.rows, records[:count], [count])
    check(world.rows, records, [2, 1, 3])


def test_the_same_bytes_as_a_control_record_are_none() -> None:
    world = claimed()
    add = record(world, encode_segment_row(usual_add(world, 9)))
    for control_type in ControlRecordType:
        check(world.rows, [add._replace(control_type=int(control_type))], [1])


KINDS = (
    "add",
    "add",
    "add",
    "add",
    "again",
    "finish",
    "delete",
    "claim",
    "reset",
    "stale",
    "other",
)


@given(
    plan=st.lists(
        st.tuples(st.sampled_from(KINDS), st.integers(0, 12), st.integers(-10, 10)), max_size=40
    ),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5),
)
def test_steps_of_any_records_come_to_the_same(
    plan: list[tuple[str, int, int]], sizes: list[int]
) -> None:
    worlds = [World(ORDERS), World(PAYMENTS)]
    worlds[1].rows = worlds[0].rows
    for at, world in enumerate(worlds):
        world.offset = at - 1
        world.leads((4, 0))
    before = MemoryRows(worlds[0].rows.items())
    records: list[CommittedRecord] = []
    offset = 9
    for kind, number, after_ms in plan:
        world = worlds[number % 2]
        proposal = encode(_record(world, kind, number))
        offset += 1
        world.time_ms += after_ms
        records.append(
            CommittedRecord(offset, 1, world.time_ms, proposal.control_type, proposal.value)
        )
        if kind == "claim":
            world.token = offset
    check(before, records, sizes)


def _record(world: World, kind: str, number: int) -> MetadataRecord:
    add = usual_add(world, number, no_index=number % 3 > 0)
    if kind == "finish":
        return world.a_finish(number)
    if kind == "delete":
        return world.a_delete(number, SegmentState.COPY_SEGMENT_STARTED)
    if kind == "claim":
        return world.a_claim([(4, 0), (5 + world.claims, 150)])
    if kind == "reset":
        return ClaimReset(world.partition, world.token, 0)
    if kind == "stale":
        return replace(add, token=world.token + 1) if number % 2 else replace(add, writer=NODE_2)
    if kind == "other":
        elsewhere = replace(world.partition, topic="another")
        return replace(add, segment_id=RemoteLogSegmentId(elsewhere, segment_uuid(number)))
    return add

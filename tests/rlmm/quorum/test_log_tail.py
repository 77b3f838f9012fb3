"""The newest batches in memory."""

from __future__ import annotations

from rlmm.metadata_log import Proposal
from rlmm.quorum.framing import NO_OP, PlacedBatch
from rlmm.quorum.log_tail import Tail


def batch(base: int, *, records: int = 4, control_type: int | None = None) -> PlacedBatch:
    proposals = tuple(Proposal(control_type, b"%d" % (base + each)) for each in range(records))
    return PlacedBatch(base, base + records, 1, b"%010d" % base, 5, proposals)


def filled(tail: Tail, end: int) -> Tail:
    for base in range(0, end, 4):
        tail.add(batch(base))
    return tail


def test_offsets_are_found_from_the_batch_that_holds_them() -> None:
    tail = filled(Tail(bytes_max=1_000), 40)
    group = tail.group_at(38, 40, 100)
    assert group is not None
    assert [record.offset for record in group.records] == [38, 39]
    assert (group.end_offset, group.end_epoch) == (40, 1)
    assert tail.bytes_at(38, 40, 100) == b"0000000036"
    assert tail.group_at(40, 40, 100) is None
    assert tail.bytes_at(40, 44, 100) is None


def test_reads_end_at_the_end_offset_and_at_the_bound_but_give_one_batch() -> None:
    tail = filled(Tail(bytes_max=1_000), 40)
    assert tail.bytes_at(0, 40, 25) == b"00000000000000000004"
    assert tail.bytes_at(0, 40, 1) == b"0000000000"
    assert tail.bytes_at(0, 7, 100) == b"0000000000"
    group = tail.group_at(0, 40, 5)
    assert group is not None
    assert group.end_offset == 8
    assert tail.group_at(4, 7, 100) is None


def test_what_is_written_is_forgotten_past_the_bound_and_nothing_else() -> None:
    tail = filled(Tail(bytes_max=20), 40)
    assert tail.bytes_at(0, 40, 1) is not None
    tail.written(16, 0)
    assert [offset for offset in range(40) if tail.bytes_at(offset, 40, 1)] == list(range(16, 40))
    tail.written(40, 0)
    assert [offset for offset in range(40) if tail.bytes_at(offset, 40, 1)] == list(range(32, 40))


def test_a_write_of_before_a_truncation_says_nothing_about_what_came_after() -> None:
    tail = filled(Tail(bytes_max=0), 16)
    tail.truncate_to(8, 1)
    tail.add(batch(8))
    tail.written(16, 0)
    assert tail.bytes_at(8, 12, 1) == b"0000000008"
    assert tail.bytes_at(12, 16, 1) is None
    tail.written(12, 1)
    assert tail.bytes_at(8, 12, 1) is None


def test_a_truncation_below_what_was_forgotten_leaves_what_comes_findable() -> None:
    tail = filled(Tail(bytes_max=60), 40)
    tail.written(28, 0)
    tail.truncate_to(4, 1)
    for base in (4, 8, 12):
        tail.add(batch(base))
    assert [tail.bytes_at(offset, 16, 1) for offset in (4, 8, 12)] == [
        b"0000000004",
        b"0000000008",
        b"0000000012",
    ]


def test_a_snapshot_replaces_everything() -> None:
    tail = filled(Tail(bytes_max=1_000), 16)
    tail.reset(3)
    assert tail.bytes_at(0, 16, 1) is None
    tail.add(batch(100))
    assert tail.bytes_at(100, 104, 1) == b"0000000100"


def test_records_of_the_logs_own_are_left_out_but_lead_on() -> None:
    tail = Tail(bytes_max=1_000)
    tail.add(batch(0, records=1, control_type=NO_OP))
    group = tail.group_at(0, 1, 100)
    assert group is not None
    assert (group.records, group.end_offset) == ((), 1)

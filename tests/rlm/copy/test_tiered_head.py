"""Where epochs begin that a broker's checkpoint has lost, by the tier's own segments."""

from __future__ import annotations

import pytest

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry, Epochs
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.copy.tiered_head import tiered_head, with_recorded_start
from rlmm.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState

TIP = TopicIdPartition("orders", Uuid(bytes(15) + b"\x07"), 0)
Entries = tuple[tuple[int, int], ...]


def epochs(entries: Entries) -> Epochs:
    return tuple(EpochEntry(*each) for each in entries)


def row(
    end: int,
    *leader_epochs: tuple[int, int],
    state: SegmentState = SegmentState.COPY_SEGMENT_FINISHED,
) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        RemoteLogSegmentId(TIP, Uuid(bytes(16))), leader_epochs[0][1], end, 1, 1, 1, leader_epochs,
        100, None, state,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("checkpoint", "rows", "expected"),
    [
        ((), [row(9, (0, 0))], ()),
        (((2, 56), (4, 64)), [], ((2, 56),)),
        (((2, 56), (4, 64)), [row(32, (2, 27)), row(51, (2, 33))], ((2, 27),)),
        # An epoch leads to the ones below it, by each segment that crosses a border.
        (
            ((4, 64),),
            [
                row(9, (0, 0)),
                row(30, (0, 10), (2, 27)),
                row(60, (2, 31)),
                row(70, (2, 61), (4, 64)),
            ],
            ((0, 0), (2, 27), (4, 64)),
        ),
        # What the broker knows better stays: a start is only ever wrong upwards.
        (((2, 20), (4, 64)), [row(32, (2, 27))], ((2, 20),)),
        # Another leader's segments of lower epochs prove nothing.
        (((2, 56),), [row(40, (0, 0), (1, 20))], ((2, 56),)),
        # One that is being deleted, or was only begun, tells nothing.
        (
            ((2, 56),),
            [
                row(32, (2, 27), state=SegmentState.DELETE_SEGMENT_STARTED),
                row(39, (2, 33), state=SegmentState.COPY_SEGMENT_STARTED),
                row(51, (2, 40)),
            ],
            ((2, 40),),
        ),
    ],
)
def test_the_tier_tells_where_the_first_known_epoch_begins(
    checkpoint: Entries, rows: list[RemoteLogSegmentMetadata], expected: Entries
) -> None:
    def listed(epoch: int) -> list[RemoteLogSegmentMetadata]:
        return [each for each in rows if epoch in dict(each.leader_epochs)]

    assert tiered_head(epochs(checkpoint), (), listed) == epochs(expected)


@pytest.mark.parametrize(
    ("recorded", "expected", "asked"),
    [
        # The usual claim: one look, and nothing to add.
        (((0, 0), (1, 10), (2, 20), (3, 30)), ((3, 36),), [3]),
        # What an unclean election cut is found again, down to what it left.
        (((0, 0), (1, 10)), ((1, 10), (2, 20), (3, 30)), [3, 2, 1]),
        (((0, 0), (5, 10)), ((0, 0), (1, 10), (2, 20), (3, 30)), [3, 2, 1, 0]),
    ],
)
def test_it_ends_where_the_recorded_lineage_goes_on(
    recorded: Entries, expected: Entries, asked: list[int]
) -> None:
    rows = {
        each: row(each * 10 + 14, (each, each * 10), (each + 1, each * 10 + 10))
        for each in range(3)
    }
    looks: list[int] = []

    def listed(epoch: int) -> list[RemoteLogSegmentMetadata]:
        looks.append(epoch)
        return [rows[each] for each in (epoch - 1, epoch) if each in rows]

    assert tiered_head(epochs(((3, 36),)), epochs(recorded), listed) == epochs(expected)
    assert looks == asked


def test_ten_thousand_epochs_are_walked_once() -> None:
    end = 10_000
    rows = {
        each: row(each * 10 + 14, (each, each * 10), (each + 1, each * 10 + 10))
        for each in range(end)
    }
    looks: list[int] = []

    def listed(epoch: int) -> list[RemoteLogSegmentMetadata]:
        looks.append(epoch)
        return [rows[epoch - 1]] if epoch else [rows[0]]

    found = tiered_head(epochs(((end, end * 10 + 5),)), (), listed)
    assert found == tuple(EpochEntry(each, each * 10) for each in range(end + 1))
    assert looks == [*range(end, -1, -1)]


@pytest.mark.parametrize(
    ("checkpoint", "recorded", "expected"),
    [
        ((), ((2, 36),), ()),
        (((2, 44), (4, 54)), (), ((2, 44), (4, 54))),
        (((2, 44), (4, 54)), ((0, 0), (2, 36), (3, 40)), ((2, 36), (4, 54))),
        (((2, 44), (4, 54)), ((2, 44),), ((2, 44), (4, 54))),
        (((2, 44), (4, 54)), ((2, 50),), ((2, 44), (4, 54))),
        (((2, 44), (4, 54)), ((0, 0), (3, 36)), ((2, 44), (4, 54))),
    ],
)
def test_the_first_epoch_keeps_the_lower_start_that_is_recorded(
    checkpoint: Entries, recorded: Entries, expected: Entries
) -> None:
    assert with_recorded_start(epochs(checkpoint), epochs(recorded)) == epochs(expected)

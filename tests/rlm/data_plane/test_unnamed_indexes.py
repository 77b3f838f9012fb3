"""Indexes are found in `.indexes` without the manifest that has their places, or not at all."""

from __future__ import annotations

import random

import pytest

from kafka_formats import leader_epoch_checkpoint, producer_snapshot, transaction_index
from kafka_formats.producer_snapshot import ProducerState
from kafka_formats.transaction_index import AbortedTransaction
from rlm.data_plane.segment_indexes import SegmentIndexes
from rlm.data_plane.unnamed_indexes import UnnamedIndexes, unnamed_indexes
from rlm.format.manifest import IndexType
from rlm.local_log.log_dir import LocalPartition, LocalSegment, find_partitions
from tests.rlm.broker_files import CAPTURED
from tests.rlm.data_plane.test_segment_indexes import build
from tests.rlm.planner_facts import epochs
from tests.rlm.tier import copy_job


def captured() -> list[tuple[LocalPartition, LocalSegment]]:
    return [
        (partition, segment)
        for partition in find_partitions([CAPTURED / "log-dir"], kafka_cluster_id=None).partitions
        for segment in partition.segments[:-1]
    ]


def part(indexes: SegmentIndexes, index: IndexType) -> bytes:
    found = indexes.ranges.get(index)
    return b"" if found is None else indexes.data[found.position : found.position + found.size]


def test_those_of_a_broker_are_found_as_the_manifest_has_them() -> None:
    with_aborts = 0
    for partition, segment in captured():
        indexes = build(copy_job(partition, segment))
        found = unnamed_indexes(indexes.data)
        assert found == (
            part(indexes, IndexType.PRODUCER_SNAPSHOT), part(indexes, IndexType.TRANSACTION),
        )  # fmt: skip
        with_aborts += bool(found.transactions)
    assert with_aborts > 1


@pytest.mark.parametrize("seed", range(40))
def test_any_others_are_found_as_they_were_put_together(seed: int) -> None:
    chance = random.Random(seed)

    def number() -> int:
        # Also of digits and line ends, as an epoch checkpoint has them.
        return int.from_bytes(chance.choices(b"\x0a\x20\x30\x31\x00\x01", k=7))

    producers = [
        ProducerState(number(), chance.randrange(9), 1, number(), 0, number(), 1, number())
        for _ in range(chance.randrange(4))
    ]
    markers = sorted({number() + 1 for _ in range(chance.randrange(4))})
    aborted = [AbortedTransaction(number(), marker - 1, marker, number()) for marker in markers]
    lineage = epochs((0, 0), (3, 10), (number() % 2**30 + 4, number() + 11))[
        : chance.choice((1, 3))
    ]
    snapshot = chance.choice((b"", producer_snapshot.encode(producers)))
    transactions = transaction_index.encode(aborted)
    data = b"".join(
        (
            chance.randbytes(8 * chance.randrange(50)),
            chance.randbytes(12 * chance.randrange(50)),
            snapshot,
            leader_epoch_checkpoint.encode(lineage),
            transactions,
        )
    )
    assert unnamed_indexes(data) == UnnamedIndexes(snapshot, transactions)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"0\n1\n",
        b"0\n2\n0 0\n",
        b"0\n1\n0 0\n1 7\n",
        b"0\n1\n0 0\n" + bytes(33),
    ],
)
def test_what_can_be_read_in_no_way_is_not_guessed(data: bytes) -> None:
    assert unnamed_indexes(data) is None

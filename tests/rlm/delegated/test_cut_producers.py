"""[LOSS-9] A follower that builds on a cut segment knows the producers of its leader's history."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest

from kafka_formats import producer_snapshot
from kafka_formats.control_record import ControlType, control_key
from kafka_formats.errors import RetryLater
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.producer_snapshot import ProducerState
from kafka_formats.record_batch import Record, encode_batch
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.delegated.cut_producers import CutProducers
from rlm.format.manifest import IndexType
from rlmm.rows.served_ranges import ServedRange
from rlmm.segment import RemoteLogSegmentMetadata
from tests.kafka_formats.transaction_markers import end_transaction_value
from tests.rlm.planner_facts import segment_row

BEFORE = ProducerState(7, 0, 4, 9, 4, 1, -1, -1)
BELOW, ROW = segment_row(1, 0, 9), segment_row(2, 10, 14)


def batch(offset: int, producer: int, sequence: int, *, transactional: bool = False) -> bytes:
    return encode_batch(
        [Record(offset, 1, None, b"v", ())], base_offset=offset, producer_id=producer,
        producer_epoch=0, base_sequence=sequence, transactional=transactional,
    )  # fmt: skip


def abort(offset: int, producer: int) -> bytes:
    record = Record(offset, 1, control_key(ControlType.ABORT), end_transaction_value(0), ())
    return encode_batch(
        [record], base_offset=offset, producer_id=producer, producer_epoch=0, transactional=True,
        control=True,
    )  # fmt: skip


VALID = batch(10, 7, 5) + batch(11, 8, 0, transactional=True) + batch(12, 9, 0)
TAIL = abort(13, 8) + batch(14, 7, 6)


class Reads:
    """A segment whose history ends behind offset 12, and one below it. `held`: the log comes once
    that is set.
    """

    def __init__(self) -> None:
        self.below: RemoteLogSegmentMetadata | None = BELOW
        self.held: asyncio.Event | None = None
        self.read = 0

    def served_from(
        self, _tip: TopicIdPartition, offset: int
    ) -> tuple[ServedRange, RemoteLogSegmentMetadata] | None:
        row = self.below
        if row is None or row.end_offset < offset:
            return ServedRange(10, 12, ROW.segment_id.id), ROW
        return ServedRange(row.start_offset, row.end_offset, row.segment_id.id), row

    async def open_index(self, id_: Uuid, index: IndexType) -> AsyncIterator[bytes]:
        assert (id_, index) == (BELOW.segment_id.id, IndexType.PRODUCER_SNAPSHOT)
        yield producer_snapshot.encode((BEFORE,))

    async def open_log(self, _id: Uuid, start: int, end: int) -> AsyncIterator[bytes]:
        self.read += 1
        if self.held is not None:
            await self.held.wait()
        for at in range(start, end, 50):
            yield (VALID + TAIL)[at : min(at + 50, end)]


def made(deed: Callable[[CutProducers, Reads], Awaitable[None]]) -> None:
    async def main() -> None:
        reads = Reads()
        await deed(CutProducers(reads), reads)  # type: ignore[arg-type]

    asyncio.run(main())


async def cut() -> int:
    return len(VALID)


def test_the_producers_are_those_at_the_cut() -> None:
    """The tail ended a transaction that the partition's own history has open, and went on."""

    async def deed(producers: CutProducers, reads: Reads) -> None:
        data = await producers.at(ROW, 12, cut)
        found = {each.producer_id: each for each in producer_snapshot.parse(data, source="test")}
        assert (found[7].last_sequence, found[7].last_offset) == (5, 10)
        assert found[8].current_txn_first_offset == 11
        assert (found[9].last_sequence, found[9].last_offset) == (0, 12)
        assert await producers.at(ROW, 12, cut) == data
        assert reads.read == 1

    made(deed)


def test_a_call_does_not_wait_for_a_long_segment_and_a_later_one_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rlm.delegated.cut_producers.ASKED_S", 0.01)

    async def deed(producers: CutProducers, reads: Reads) -> None:
        reads.held = asyncio.Event()
        for _ in range(2):
            with pytest.raises(RetryLater, match="ask again"):
                await producers.at(ROW, 12, cut)
        reads.held.set()
        monkeypatch.setattr("rlm.delegated.cut_producers.ASKED_S", 30.0)
        assert producer_snapshot.parse(await producers.at(ROW, 12, cut), source="test")
        assert reads.read == 1

    made(deed)


@pytest.mark.parametrize(
    "below", [None, replace(BELOW, end_offset=8), replace(BELOW, end_offset=11)]
)
def test_without_the_state_at_its_base_none_is_given(
    below: RemoteLogSegmentMetadata | None,
) -> None:
    async def deed(producers: CutProducers, reads: Reads) -> None:
        reads.below = below
        for _ in range(2):  # an error is not kept
            with pytest.raises(RetryLater, match="no tiered segment that ends at offset"):
                await producers.at(ROW, 12, cut)
        assert not reads.read
        reads.below = BELOW
        assert await producers.at(ROW, 12, cut)

    made(deed)


def test_the_first_segment_of_a_partition_needs_none_below() -> None:
    first = replace(ROW, start_offset=0)

    async def deed(producers: CutProducers, reads: Reads) -> None:
        reads.below = None
        data = await producers.at(first, 12, cut)
        found = producer_snapshot.parse(data, source="test")
        assert {each.producer_id for each in found} == {7, 8, 9}

    made(deed)


def test_what_nobody_waited_for_is_kept_when_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlm.delegated.cut_producers.ASKED_S", 0.01)
    monkeypatch.setattr("rlm.delegated.cut_producers.MAKING_MAX", 1)

    async def deed(producers: CutProducers, reads: Reads) -> None:
        reads.held = asyncio.Event()
        with pytest.raises(RetryLater, match="ask again"):
            await producers.at(ROW, 12, cut)
        with pytest.raises(RetryLater, match="1 producer snapshots are being made"):
            await producers.at(ROW, 11, cut)
        reads.held.set()
        async with asyncio.timeout(10):
            while producers._making:
                await asyncio.sleep(0)
        assert await producers.at(ROW, 12, cut)
        assert reads.read == 1

    made(deed)


def test_a_slow_store_is_named_and_the_next_call_tries_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rlm.delegated.cut_producers.MAKING_S", 0.01)

    async def deed(producers: CutProducers, reads: Reads) -> None:
        reads.held = asyncio.Event()
        with pytest.raises(RetryLater, match=r"within 0\.01 s: is its store slow"):
            await producers.at(ROW, 12, cut)
        reads.held.set()
        monkeypatch.setattr("rlm.delegated.cut_producers.MAKING_S", 30.0)
        assert await producers.at(ROW, 12, cut)

    made(deed)

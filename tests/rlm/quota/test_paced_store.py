"""A worker's store under a limit: bytes are asked for as they move, by topic and direction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from kafka_formats.crc32c import crc32c
from rlm.format.object_keys import segment_keys
from rlm.quota.flow_limits import Flow, Pace, Paces
from rlm.quota.paced_store import PacedStore
from rlm.quota.worker_pace import GrantBook, WorkerPace
from rlmm.segment import RemoteLogSegmentId
from rsm_backends.body_pace import current_pace
from rsm_backends.memory import MemoryStore
from rsm_backends.store import ObjectInfo
from tests.rlm.planner_facts import PARTITION, uuid

PREFIX = "tier/"
KEYS = segment_keys(PREFIX, RemoteLogSegmentId(PARTITION, uuid(1)), 0)
DATA = bytes(range(256)) * 40
LIMITED = Paces({Flow.COPY: Pace(4_096, 2), Flow.READ: Pace(4_096, 2)})
TOPIC = PARTITION.topic


class SendingStore(MemoryStore):
    """Sends bodies piece by piece, as the S3 store does, and the first one twice."""

    def __init__(self) -> None:
        super().__init__(lambda: 0)
        self.attempts = 2

    async def put(
        self, key: str, data: bytes, *, crc32c: int, create_only: bool = False
    ) -> ObjectInfo:
        pace = current_pace()
        assert pace is not None
        for _ in range(self.attempts):
            for at in range(0, len(data), pace.piece_bytes):
                await pace.before(len(data[at : at + pace.piece_bytes]))
        return await super().put(key, data, crc32c=crc32c, create_only=create_only)


@pytest.fixture
def asked() -> list[tuple[Flow, str | None, int]]:
    return []


@pytest.fixture
def paced(asked: list[tuple[Flow, str | None, int]]) -> Callable[..., PacedStore]:
    async def ask(flow: Flow, topic: str | None, size: int) -> None:
        asked.append((flow, topic, size))

    return lambda store, paces=LIMITED: PacedStore(store, PREFIX, WorkerPace(paces, ask))


async def test_a_body_is_paid_for_as_it_is_sent_and_again_when_it_is_sent_again(
    asked: list[tuple[Flow, str | None, int]], paced: Callable[..., PacedStore]
) -> None:
    await paced(SendingStore()).put(KEYS.log, DATA, crc32c=crc32c(DATA))
    sent = [4_096, 4_096, 2_048]
    assert asked == [(Flow.COPY, TOPIC, size) for size in (*sent, *sent)]
    assert current_pace() is None


async def test_a_store_that_sends_nothing_itself_is_paid_for_afterwards(
    asked: list[tuple[Flow, str | None, int]], paced: Callable[..., PacedStore]
) -> None:
    store = paced(MemoryStore(lambda: 0))
    upload = await store.start_multipart(KEYS.log)
    part = await store.put_part(KEYS.log, upload, 1, DATA, crc32c=crc32c(DATA))
    await store.complete_multipart(KEYS.log, upload, [part], crc32c=crc32c(DATA))
    assert asked == [(Flow.COPY, TOPIC, size) for size in (4_096, 4_096, 2_048)]


async def test_pieces_that_are_read_are_paid_for_before_they_are_handed_on(
    asked: list[tuple[Flow, str | None, int]], paced: Callable[..., PacedStore]
) -> None:
    memory = MemoryStore(lambda: 0)
    await memory.put(KEYS.log, DATA, crc32c=crc32c(DATA))
    pieces = [piece async for piece in paced(memory).get(KEYS.log, start=10, end=5_010)]
    assert b"".join(pieces) == DATA[10:5_010]
    assert sum(size for _, _, size in asked) == 5_000
    assert {each[:2] for each in asked} == {(Flow.READ, TOPIC)}


async def test_what_is_no_segment_belongs_to_no_topic_and_counts_for_the_node(
    asked: list[tuple[Flow, str | None, int]], paced: Callable[..., PacedStore]
) -> None:
    only_topic = Paces({}, {(Flow.COPY, TOPIC): Pace(4_096, 2)})
    await paced(MemoryStore(lambda: 0)).put("tier/other", b"12", crc32c=crc32c(b"12"))
    await paced(MemoryStore(lambda: 0), only_topic).put("tier/other", b"12", crc32c=crc32c(b"12"))
    assert asked == [(Flow.COPY, None, 2)]


async def test_without_a_limit_nobody_is_asked(
    asked: list[tuple[Flow, str | None, int]], paced: Callable[..., PacedStore]
) -> None:
    store = paced(MemoryStore(lambda: 0), Paces())
    await store.put(KEYS.log, DATA, crc32c=crc32c(DATA))
    assert b"".join([piece async for piece in store.get(KEYS.log)]) == DATA
    assert asked == []


async def test_an_answer_that_nobody_waits_for_any_more_is_passed_over() -> None:
    numbers: list[int] = []
    taken_back: list[int] = []
    book = GrantBook(lambda number, *_: numbers.append(number), taken_back.append)
    first = asyncio.create_task(book.ask(Flow.COPY, None, 5))
    await asyncio.sleep(0)
    book.answered(17)
    book.answered(numbers[0])
    book.answered(numbers[0])
    await first
    second = asyncio.create_task(book.ask(Flow.COPY, None, 5))
    await asyncio.sleep(0)
    book.answered(numbers[0])
    await asyncio.sleep(0)
    assert not second.done(), "the answer was to another question"
    book.answered(numbers[1])
    await second
    assert len(set(numbers)) == 2
    third = asyncio.create_task(book.ask(Flow.COPY, None, 5))
    await asyncio.sleep(0)
    third.cancel()
    await asyncio.gather(third, return_exceptions=True)
    assert taken_back == [numbers[2]], "those behind it need not wait"

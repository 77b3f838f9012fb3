"""What is repeated, what never is, and how a lost answer is settled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import (
    AlreadyExists,
    Conflict,
    CorruptData,
    InvalidRequest,
    NotFound,
    Refused,
    RetryLater,
    StrandlineError,
)
from rsm_backends.memory import MemoryStore
from rsm_backends.retrying import PROGRESS_BYTES, RetryingStore, RetryPolicy
from rsm_backends.store import ObjectInfo
from rsm_backends.streams import closing_stream, read_all
from tests.rsm_backends.faulty import FaultKind, FaultyStore, ScriptedFaults
from tests.rsm_backends.stores import clock_ms, memory_store, retrying

DATA = b"the bytes of one object"
CRC = crc32c(DATA)
BEFORE, LOST, TORN = FaultKind.BEFORE_EFFECT, FaultKind.LOST_ANSWER, FaultKind.TORN


class CountingStore(MemoryStore):
    """Counts heads, and forgets checksums if told so."""

    def __init__(self, *, keeps_checksums: bool = True) -> None:
        super().__init__(clock_ms())
        self.heads = 0
        self._keeps_checksums = keeps_checksums

    async def head(self, key: str) -> ObjectInfo:
        self.heads += 1
        info = await super().head(key)
        return info if self._keeps_checksums else info._replace(crc32c=None)


class FailingStore(MemoryStore):
    """Every head raises the same error."""

    def __init__(self, error: StrandlineError) -> None:
        super().__init__(clock_ms())
        self.error = error
        self.calls = 0

    async def head(self, key: str) -> ObjectInfo:
        self.calls += 1
        raise self.error


def scripted(
    store: MemoryStore, *script: tuple[str, FaultKind], attempts_max: int = 4
) -> RetryingStore:
    return retrying(FaultyStore(store, ScriptedFaults(script)), attempts_max=attempts_max)


@pytest.mark.parametrize(
    "error",
    [
        AlreadyExists("x"),
        NotFound("x"),
        Refused("x"),
        InvalidRequest("x"),
        CorruptData("x", source="x", position=0),
    ],
)
async def test_a_clear_answer_is_never_asked_for_twice(error: StrandlineError) -> None:
    inner = FailingStore(error)
    with pytest.raises(type(error)):
        await retrying(inner).head("a")
    assert inner.calls == 1


async def test_a_passing_failure_is_repeated_up_to_the_limit() -> None:
    inner = FailingStore(RetryLater("busy"))
    with pytest.raises(RetryLater, match="busy"):
        await retrying(inner, attempts_max=3).head("a")
    assert inner.calls == 3


async def test_waits_grow_up_to_their_limit_and_are_drawn_from_zero() -> None:
    waits: list[float] = []
    fractions = iter([1.0, 1.0, 0.5, 0.0, 1.0])

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    store = RetryingStore(
        FailingStore(RetryLater("busy")),
        RetryPolicy(attempts_max=6, backoff_base_s=1.0, backoff_max_s=5.0),
        sleep=sleep,
        random_fraction=lambda: next(fractions, 0.0),
        monotonic=lambda: 0.0,
    )
    with pytest.raises(RetryLater):
        await store.head("a")
    assert waits == [1.0, 2.0, 2.0, 0.0, 5.0]


async def test_no_attempt_is_begun_that_the_deadline_would_cut_off() -> None:
    inner = FailingStore(RetryLater("busy"))
    times = iter([0.0, 5.0, 9.5])
    store = RetryingStore(
        inner,
        RetryPolicy(attempts_max=9, backoff_base_s=1.0, deadline_s=10.0),
        sleep=lambda _: _nothing(),
        random_fraction=lambda: 1.0,
        monotonic=lambda: next(times),
    )
    with pytest.raises(RetryLater, match="busy"):
        await store.head("a")
    assert inner.calls == 2


async def _nothing() -> None: ...


async def test_a_store_that_never_answers_is_given_up_at_the_deadline() -> None:
    class Silent(MemoryStore):
        async def head(self, key: str) -> ObjectInfo:
            await asyncio.Event().wait()
            raise AssertionError("never reached")

        async def get(
            self, key: str, *, start: int = 0, end: int | None = None
        ) -> AsyncIterator[bytes]:
            await asyncio.Event().wait()
            yield b""

    store = RetryingStore(
        Silent(clock_ms()),
        RetryPolicy(attempts_max=2, deadline_s=0.001),
        sleep=lambda _: _nothing(),
        random_fraction=lambda: 0.0,
        monotonic=lambda: 0.0,
    )
    with pytest.raises(RetryLater, match="head of 'a' did not end within"):
        await store.head("a")
    with pytest.raises(RetryLater, match="get of 'a' did not end within"):
        await read_all(store, "a")


@pytest.mark.parametrize("keeps_checksums", [True, False])
async def test_a_create_only_put_whose_answer_was_lost_is_found_to_be_ours(
    keeps_checksums: bool,
) -> None:
    inner = CountingStore(keeps_checksums=keeps_checksums)
    store = scripted(inner, ("put", LOST), ("head", BEFORE))
    info = await store.put("a", DATA, crc32c=CRC, create_only=True)
    assert info.size == len(DATA)
    assert await read_all(inner, "a") == DATA


@pytest.mark.parametrize("keeps_checksums", [True, False])
@pytest.mark.parametrize("theirs", [b"another's bytes of one", b"other bytes", DATA[::-1]])
async def test_another_writers_object_is_not_taken_for_ours(
    keeps_checksums: bool, theirs: bytes
) -> None:
    inner = CountingStore(keeps_checksums=keeps_checksums)
    await inner.put("a", theirs, crc32c=crc32c(theirs))
    with pytest.raises(AlreadyExists):
        await scripted(inner, ("put", BEFORE)).put("a", DATA, crc32c=CRC, create_only=True)
    assert await read_all(inner, "a") == theirs


async def test_an_object_that_was_there_before_the_first_attempt_is_never_ours() -> None:
    inner = CountingStore()
    await inner.put("a", DATA, crc32c=CRC)
    with pytest.raises(AlreadyExists):
        await retrying(inner).put("a", DATA, crc32c=CRC, create_only=True)
    assert inner.heads == 0


async def test_a_put_that_lost_every_answer_is_settled_by_a_last_look() -> None:
    inner = CountingStore()
    store = scripted(inner, *[("put", LOST)] * 4)
    assert (await store.put("a", DATA, crc32c=CRC, create_only=True)).crc32c == CRC


async def test_a_put_that_never_arrived_stays_an_error() -> None:
    inner = CountingStore()
    with pytest.raises(RetryLater, match="planted"):
        await scripted(inner, *[("put", BEFORE)] * 4).put("a", DATA, crc32c=CRC)
    assert inner.heads == 1


@pytest.mark.parametrize("create_only", [True, False])
async def test_a_completion_whose_answer_was_lost_is_found_to_be_done(create_only: bool) -> None:
    inner = memory_store()
    store = scripted(inner, ("complete_multipart", LOST))
    upload_id = await store.start_multipart("a")
    part = await store.put_part("a", upload_id, 1, DATA, crc32c=CRC)
    info = await store.complete_multipart(
        "a", upload_id, [part], crc32c=CRC, create_only=create_only
    )
    assert info.size == len(DATA)


async def test_a_completion_of_an_upload_that_was_aborted_meanwhile_is_not_found() -> None:
    inner = memory_store()
    store = scripted(inner, ("complete_multipart", BEFORE))
    upload_id = await store.start_multipart("a")
    part = await store.put_part("a", upload_id, 1, DATA, crc32c=CRC)
    await inner.abort_multipart("a", upload_id)
    with pytest.raises(NotFound):
        await store.complete_multipart("a", upload_id, [part], crc32c=CRC)


async def test_a_torn_stream_goes_on_where_it_broke_off() -> None:
    inner = memory_store()
    data = bytes(range(256)) * 5000
    await inner.put("a", data, crc32c=crc32c(data))
    store = scripted(inner, *[("get", TORN)] * 20, attempts_max=3)
    assert await read_all(store, "a", start=3, end=1_000_003) == data[3:1_000_003]


async def test_a_stream_torn_after_its_last_byte_is_complete() -> None:
    inner = memory_store()
    await inner.put("a", DATA, crc32c=CRC)

    class TornAtTheEnd(MemoryStore):
        async def get(
            self, key: str, *, start: int = 0, end: int | None = None
        ) -> AsyncIterator[bytes]:
            yield DATA[start:end]
            raise RetryLater("cut off")

    store = retrying(TornAtTheEnd(clock_ms()))
    assert await read_all(store, "a", end=len(DATA)) == DATA


async def test_a_stream_without_progress_is_given_up() -> None:
    inner = memory_store()
    await inner.put("a", DATA, crc32c=CRC)
    with pytest.raises(RetryLater):
        await read_all(scripted(inner, *[("get", BEFORE)] * 4), "a")


async def test_leaving_a_stream_early_closes_the_stores_stream() -> None:
    closed = []

    class Watched(MemoryStore):
        async def get(
            self, key: str, *, start: int = 0, end: int | None = None
        ) -> AsyncIterator[bytes]:
            try:
                yield b"one"
                yield b"two"
            finally:
                closed.append(key)

    async with closing_stream(retrying(Watched(clock_ms())).get("a")) as stream:
        assert await anext(stream) == b"one"
    assert closed == ["a"]


async def test_a_replacement_whose_answer_was_lost_is_found_to_be_ours() -> None:
    inner = memory_store()
    first = await inner.put("a", b"first", crc32c=crc32c(b"first"))
    faulty = FaultyStore(inner, ScriptedFaults([("replace", FaultKind.LOST_ANSWER)]))
    done = await retrying(faulty).replace("a", b"second", crc32c=crc32c(b"second"), etag=first.etag)
    assert done == await inner.head("a")


async def test_a_replacement_that_another_writer_overtook_is_a_conflict() -> None:
    inner = memory_store()
    first = await inner.put("a", b"first", crc32c=crc32c(b"first"))
    await inner.put("a", b"rival!", crc32c=crc32c(b"rival!"))
    faulty = FaultyStore(inner, ScriptedFaults([("replace", FaultKind.BEFORE_EFFECT)]))
    with pytest.raises(Conflict):
        await retrying(faulty).replace("a", b"second", crc32c=crc32c(b"second"), etag=first.etag)


@pytest.mark.parametrize(
    ("piece_bytes", "size", "is_given_up"),
    [(1, 100, True), (PROGRESS_BYTES, 100 * PROGRESS_BYTES, False), (1, 3, False)],
)
async def test_a_stream_that_drips_ends_at_the_deadline(
    piece_bytes: int, size: int, is_given_up: bool
) -> None:
    """Every piece takes 30 s, which is no silence; each connection ends behind its third piece."""
    clock = [0.0]

    class Dripping(MemoryStore):
        async def get(
            self, key: str, *, start: int = 0, end: int | None = None
        ) -> AsyncIterator[bytes]:
            for at in range(start, size, piece_bytes):
                if at >= start + 3 * piece_bytes:
                    raise RetryLater("cut off")
                clock[0] += 30
                yield bytes(piece_bytes)

    async def sleep(seconds: float) -> None:
        clock[0] += seconds

    store = RetryingStore(
        Dripping(clock_ms()),
        RetryPolicy(deadline_s=120),
        sleep=sleep,
        random_fraction=lambda: 0.5,
        monotonic=lambda: clock[0],
    )
    if is_given_up:
        with pytest.raises(RetryLater):
            await read_all(store, "k")
        assert clock[0] < 150
    else:
        assert len(await read_all(store, "k")) == size

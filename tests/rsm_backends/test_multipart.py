"""Parallel uploads: bounded memory, whole or not at all, nothing left behind."""

from __future__ import annotations

import asyncio
import functools
import tracemalloc
from collections.abc import AsyncIterator, Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_formats.crc32c import Buffer, crc32c
from kafka_formats.errors import AlreadyExists, CorruptData, InvalidRequest, Refused, RetryLater
from rsm_backends.memory import MemoryStore
from rsm_backends.multipart import (
    Part,
    PartLimits,
    upload_parts,
    upload_whole_parts,
)
from rsm_backends.store import ObjectInfo, UploadedPart
from rsm_backends.streams import read_all
from tests.rsm_backends.faulty import FaultKind, FaultyStore, ScriptedFaults
from tests.rsm_backends.stores import clock_ms, memory_store

MIB = 1024 * 1024


async def source(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


class SlowStore(MemoryStore):
    """Parts wait for `gate`; `most_at_once` tells how many ever waited together."""

    def __init__(self) -> None:
        super().__init__(clock_ms())
        self.gate = asyncio.Event()
        self.at_once = 0
        self.most_at_once = 0
        self.arrived = asyncio.Event()

    async def put_part(
        self, key: str, upload_id: str, number: int, data: Buffer, *, crc32c: int
    ) -> UploadedPart:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.arrived.set()
        try:
            await self.gate.wait()
            await asyncio.sleep(0)
            return await super().put_part(key, upload_id, number, data, crc32c=crc32c)
        finally:
            self.at_once -= 1


@settings(max_examples=100, deadline=None)
@given(
    pieces=st.lists(st.binary(max_size=40), max_size=12),
    part_bytes=st.integers(1, 50),
    parallel=st.integers(1, 4),
)
def test_any_cutting_into_pieces_gives_the_same_object(
    pieces: list[bytes], part_bytes: int, parallel: int
) -> None:
    async def upload() -> None:
        store = memory_store()
        stored: list[int] = []
        result = await upload_parts(
            store,
            "a",
            source(pieces),
            PartLimits(part_bytes, parallel),
            on_progress=stored.append,
        )
        whole = b"".join(pieces)
        assert (result.size, result.crc32c) == (len(whole), crc32c(whole))
        assert await read_all(store, "a") == whole
        assert await store.list_uploads("a") == ()
        assert stored == sorted(stored)
        assert stored[-1] == len(whole)

    asyncio.run(upload())


async def test_what_fits_in_one_part_is_a_single_put() -> None:
    store = FaultyStore(memory_store(), ScriptedFaults([("start_multipart", FaultKind.TORN)]))
    result = await upload_parts(store, "a", source([b"x" * 10]), PartLimits(10, 1))
    assert result.size == 10


async def test_no_more_parts_than_allowed_are_on_their_way() -> None:
    store = SlowStore()
    task = asyncio.create_task(upload_parts(store, "a", source([b"x" * 7] * 30), PartLimits(10, 3)))
    await store.arrived.wait()
    store.gate.set()
    await task
    assert store.most_at_once == 3


@pytest.mark.parametrize("piece_bytes", [MIB, 300_000])
async def test_memory_is_bounded_by_the_parts_on_their_way(piece_bytes: int) -> None:
    class Nowhere(MemoryStore):
        """Keeps no part, so that only the uploader's memory counts."""

        async def put_part(
            self, key: str, upload_id: str, number: int, data: Buffer, *, crc32c: int
        ) -> UploadedPart:
            for _ in range(5):
                await asyncio.sleep(0)
            return UploadedPart(number, len(data), crc32c, "")

        async def complete_multipart(
            self,
            key: str,
            upload_id: str,
            parts: Sequence[UploadedPart],
            *,
            crc32c: int,
            create_only: bool = False,
        ) -> ObjectInfo:
            return ObjectInfo(key, 0, crc32c, None, "")

    async def pieces() -> AsyncIterator[bytes]:
        for number in range(40 * MIB // piece_bytes):
            yield bytes([number % 256]) * piece_bytes

    tracemalloc.start()
    try:
        await upload_parts(Nowhere(clock_ms()), "a", pieces(), PartLimits(MIB, 3))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The source holds a piece of its own while it makes the next one.
    assert peak < (3 + 1) * MIB + 2 * piece_bytes + MIB // 2


async def test_a_failing_part_ends_the_upload_and_aborts_it() -> None:
    inner = memory_store()
    store = FaultyStore(inner, ScriptedFaults([("put_part", FaultKind.BEFORE_EFFECT)]))
    with pytest.raises(RetryLater, match="planted"):
        await upload_parts(store, "a", source([b"x" * 95]), PartLimits(10, 2))
    assert await inner.list_uploads("a") == ()
    assert (await inner.list_page("")).objects == ()


async def test_a_failing_source_ends_the_upload_and_aborts_it() -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"x" * 25
        raise OSError("the disk is gone")

    store = memory_store()
    with pytest.raises(OSError, match="the disk is gone"):
        await upload_parts(store, "a", broken(), PartLimits(10, 2))
    assert await store.list_uploads("a") == ()


async def test_a_cancelled_upload_is_aborted_first() -> None:
    store = SlowStore()
    task = asyncio.create_task(upload_parts(store, "a", source([b"x" * 10] * 9), PartLimits(10, 2)))
    await store.arrived.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await store.list_uploads("a") == ()
    assert store.at_once == 0


async def test_cancelling_again_does_not_interrupt_the_abort() -> None:
    class SlowAbort(SlowStore):
        aborting = asyncio.Event()
        may_abort = asyncio.Event()

        async def abort_multipart(self, key: str, upload_id: str) -> None:
            self.aborting.set()
            await self.may_abort.wait()
            await super().abort_multipart(key, upload_id)

    store = SlowAbort()
    task = asyncio.create_task(upload_parts(store, "a", source([b"x" * 10] * 9), PartLimits(10, 2)))
    await store.arrived.wait()
    task.cancel()
    await store.aborting.wait()
    task.cancel()
    store.may_abort.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await store.list_uploads("a") == ()


async def test_an_abort_that_fails_or_hangs_does_not_hide_the_first_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class NoAbort(MemoryStore):
        hangs = False

        async def put_part(self, *args: object, **kwargs: object) -> UploadedPart:
            raise Refused("no right to upload")

        async def abort_multipart(self, key: str, upload_id: str) -> None:
            if self.hangs:
                await asyncio.Event().wait()
            raise Refused("no right to abort")

    store = NoAbort(clock_ms())
    for store.hangs in (False, True):
        with pytest.raises(Refused, match="no right to upload"):
            await upload_parts(
                store, "a", source([b"x" * 30]), PartLimits(10, 2, abort_deadline_s=0.001)
            )
    assert caplog.text.count("could not be aborted and is left") == 2


@pytest.mark.parametrize("size", [5, 50])
async def test_create_only_leaves_what_is_there_and_no_upload(size: int) -> None:
    store = memory_store()
    await store.put("a", b"first", crc32c=crc32c(b"first"))
    with pytest.raises(AlreadyExists):
        await upload_parts(store, "a", source([b"x" * size]), PartLimits(10, 2), create_only=True)
    assert await read_all(store, "a") == b"first"
    assert await store.list_uploads("a") == ()


async def test_an_object_of_too_many_parts_is_refused_and_aborted() -> None:
    store = memory_store()
    with pytest.raises(InvalidRequest, match="more than 10000 parts"):
        await upload_parts(store, "a", source([b"xx"] * 5001), PartLimits(1, 4))
    assert await store.list_uploads("a") == ()


@pytest.mark.parametrize(("part_bytes", "parallel"), [(0, 1), (1, 0), (-5, 1)])
async def test_useless_sizes_are_refused(part_bytes: int, parallel: int) -> None:
    with pytest.raises(InvalidRequest):
        await upload_parts(memory_store(), "a", source([]), PartLimits(part_bytes, parallel))


async def made(parts: Iterable[Part]) -> AsyncIterator[Part]:
    for part in parts:
        yield part


@pytest.mark.parametrize("count", [0, 1, 2, 5])
async def test_a_part_is_done_once_it_is_stored(count: int) -> None:
    store = memory_store()
    done: list[int] = []
    buffers = [bytearray([number]) * 10 for number in range(count)]

    def overwrite(number: int) -> None:
        done.append(number)
        buffers[number][:] = b"!" * 10  # as if it were filled with the next part

    wanted = b"".join(buffers)
    parts = [
        Part(memoryview(buffer), crc32c(buffer), functools.partial(overwrite, number))
        for number, buffer in enumerate(buffers)
    ]
    result = await upload_whole_parts(store, "a", made(parts), parallel=2)
    assert (result.size, result.crc32c) == (len(wanted), crc32c(wanted))
    assert sorted(done) == list(range(count))
    assert await read_all(store, "a") == wanted


async def test_a_part_that_is_not_stored_is_not_done() -> None:
    store = FaultyStore(memory_store(), ScriptedFaults([("put_part", FaultKind.BEFORE_EFFECT)]))
    done: list[int] = []
    parts = [Part(b"x" * 10, crc32c(b"x" * 10), lambda: done.append(1)) for _ in range(2)]
    with pytest.raises(RetryLater):
        await upload_whole_parts(store, "a", made(parts), parallel=1)
    assert done == []


async def test_a_part_that_is_not_what_its_maker_summed_is_not_stored() -> None:
    buffer = bytearray(b"x" * 10)
    part = Part(memoryview(buffer), crc32c(buffer))
    buffer[3] = 0
    store = memory_store()
    for parts in ([part], [part, part]):
        with pytest.raises(CorruptData):
            await upload_whole_parts(store, "a", made(parts), parallel=1)
    assert (await store.list_page("")).objects == ()

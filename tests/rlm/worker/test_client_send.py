"""The body of an answer on its way to a client that may be slow, late, or gone."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest

from kafka_formats.errors import RetryLater
from rlm.data_plane.read_request import ClientEnd, SendRules, Sent
from rlm.data_plane.verified_chunks import Parts
from rlm.worker.client_send import TOLD_BYTES, TOLD_S, ClientSend

PATIENT = SendRules(grace_s=60, bytes_per_s_min=1, store_deadline_s=60)
PARTS = [(bytes([number]) * 50_000, bytes([number + 100]) * 3, b"") for number in range(40)]
ALL = b"".join(part for parts in PARTS for part in parts)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The connection as the worker has it, and the client's end; both hold little."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for end in (ours, theirs):
            end.setblocking(False)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        yield ours, theirs


async def stream(parts: Sequence[Parts]) -> AsyncIterator[Parts]:
    for each in parts:
        yield each


async def silence() -> AsyncIterator[Parts]:
    await asyncio.Event().wait()
    yield ()


async def sent(
    client: socket.socket,
    rules: SendRules = PATIENT,
    *,
    parts: Sequence[Parts] = PARTS,
    clock: Clock | None = None,
    rest: AsyncIterator[Parts] | None = None,
) -> Sent:
    send = ClientSend(client, rules, clock or Clock(), list[int]().append)
    return await send.send_all(parts[0], rest or stream(parts[1:]))


async def taken(client: socket.socket, size: int) -> bytes:
    """What the client gets, in small pieces, up to `size` bytes."""
    loop = asyncio.get_running_loop()
    found = bytearray()
    while len(found) < size:
        found += await loop.sock_recv(client, 3_000)
    return bytes(found)


async def test_a_slow_client_gets_every_byte_in_order(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    sending = asyncio.create_task(sent(ours))
    assert await taken(theirs, len(ALL)) == ALL
    assert await sending == Sent(ClientEnd.TOOK_ALL, len(ALL))
    with pytest.raises(BlockingIOError):
        theirs.recv(1)


async def test_a_client_that_goes_ends_the_sending(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    sending = asyncio.create_task(sent(ours))
    got = await taken(theirs, 10_000)
    theirs.close()
    ended = await sending
    assert ended.end is ClientEnd.GONE
    assert len(got) <= ended.sent_bytes < len(ALL)


async def test_a_client_that_takes_nothing_is_late(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ended = await sent(pair[0], SendRules(grace_s=0, bytes_per_s_min=1, store_deadline_s=60))
    assert ended.end is ClientEnd.LATE
    assert ended.sent_bytes < len(ALL)


async def test_a_client_that_takes_too_little_on_average_is_late(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    clock = Clock()
    rules = SendRules(grace_s=30, bytes_per_s_min=1_000_000, store_deadline_s=60)

    async def send() -> Sent:
        with ours:
            return await sent(ours, rules, clock=clock)

    sending = asyncio.create_task(send())
    while await asyncio.get_running_loop().sock_recv(theirs, 20_000):
        clock.now += 1  # every chunk well within its own deadline
    assert (await sending).end is ClientEnd.LATE


async def test_a_store_that_falls_silent_is_an_error(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    rules = SendRules(grace_s=60, bytes_per_s_min=1, store_deadline_s=0)
    with pytest.raises(RetryLater, match="no bytes came from the store"):
        await sent(pair[0], rules, parts=[(b"first",)], rest=silence())


async def test_it_tells_of_its_progress_by_size_and_by_time() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        clock, told = Clock(), list[int]()
        half = bytes(TOLD_BYTES // 2)

        async def parts() -> AsyncIterator[Parts]:
            yield (half,)
            yield (b"x",)
            clock.now += TOLD_S
            yield (b"y",)

        send = ClientSend(ours, PATIENT, clock, told.append)
        sending = asyncio.create_task(send.send_all((half,), parts()))
        await taken(theirs, TOLD_BYTES + 2)
        await sending
        assert told == [TOLD_BYTES, TOLD_BYTES + 2]

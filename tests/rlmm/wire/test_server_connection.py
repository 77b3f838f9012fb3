"""One connection of the listener: answers in the order of the requests, together where they can."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from itertools import pairwise
from typing import Any

import pytest

from rlmm.wire.anonymous_share import AnonymousShare
from rlmm.wire.frames import SIZE
from rlmm.wire.sasl_server import SaslServer
from rlmm.wire.server_connection import COUNTED_BYTES, Caller, ListenerLimits, ServerConnection


class Transport(asyncio.Transport):
    """Remembers each write."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.not_taken = 0
        self.aborted = False

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return self.not_taken

    def abort(self) -> None:
        self.aborted = True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default


class Answering:
    """Each request is answered by itself, once its future is done."""

    limits = ListenerLimits()
    is_peer = True

    def __init__(self) -> None:
        self.share = AnonymousShare(
            requests_per_turn=self.limits.anonymous_requests_per_turn_of_all,
            requests_per_s=self.limits.anonymous_requests_per_s_max,
            answer_bytes_max=self.limits.anonymous_answer_bytes_max,
        )
        self.waiting: list[asyncio.Future[bytes]] = []

    def begin(self, _caller: Caller, _frame: bytes) -> Coroutine[Any, Any, bytes]:
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.waiting.append(answer)

        async def answered() -> bytes:
            return await answer

        return answered()

    def accepted(self, _connection: ServerConnection) -> Caller | None:
        return Caller("a peer", SaslServer(None, lambda: "n", plain_allowed=True), self.is_peer)

    def ended(self, _connection: ServerConnection) -> None: ...

    def refused(self, who: str, why: str) -> None:
        pytest.fail(f"{who} {why}")


class Connected:
    """A connection over which so many requests came."""

    def __init__(self, requests: int) -> None:
        self.answering = Answering()
        self.transport = Transport()
        self.connection = ServerConnection(self.answering)
        self.connection.connection_made(self.transport)
        self.connection.data_received((SIZE.pack(8) + bytes(8)) * requests)

    async def answer(self, *numbers: int) -> list[bytes]:
        """Answer these, in one turn of the loop; what was written by it."""
        before = len(self.transport.written)
        for number in numbers:
            self.answering.waiting[number].set_result(b"%d" % number)
        for _ in range(4):
            await asyncio.sleep(0)
        return self.transport.written[before:]


async def connected(requests: int) -> Connected:
    found = Connected(requests)
    await asyncio.sleep(0)
    return found


async def test_answers_of_one_turn_go_out_together_in_the_order_of_the_requests() -> None:
    client = await connected(4)
    assert await client.answer(2, 0, 1) == [b"012"]
    assert await client.answer(3) == [b"3"]


async def test_an_answer_waits_for_those_before_it() -> None:
    client = await connected(3)
    assert await client.answer(2) == []
    assert await client.answer(0) == [b"0"]
    assert await client.answer(1) == [b"12"]


async def test_a_connection_that_was_lost_meanwhile_is_written_nothing() -> None:
    client = await connected(2)
    client.answering.waiting[0].set_result(b"0")
    await asyncio.sleep(0)
    client.connection.connection_lost(None)
    for _ in range(3):
        await asyncio.sleep(0)
    assert client.transport.written == []


REQUEST = SIZE.pack(8) + bytes(8)


class AtOnce(Answering):
    """Clients that are no peers; every request is answered at once, with a byte."""

    is_peer = False

    def __init__(self) -> None:
        super().__init__()
        self.begun = 0

    def begin(self, _caller: Caller, _frame: bytes) -> bytes:  # type: ignore[override]  # at once
        self.begun += 1
        return b"x"


def joined(requests: Answering) -> tuple[ServerConnection, Transport]:
    transport = Transport()
    connection = ServerConnection(requests)
    connection.connection_made(transport)
    return connection, transport


async def turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_a_client_that_pipelines_requests_gets_a_few_a_turn_and_some_a_second() -> None:
    requests = AtOnce()
    limits = requests.limits
    connection, transport = joined(requests)
    connection.data_received(REQUEST * 10_000)
    assert requests.begun == limits.anonymous_requests_per_turn_max  # then others have their turn
    await turns(1_000)
    assert requests.begun == limits.anonymous_requests_per_s
    for second in range(2, 5):
        connection.tick()
        await turns(1_000)
        assert requests.begun == second * limits.anonymous_requests_per_s
    assert b"".join(transport.written) == b"x" * requests.begun
    assert not transport.aborted  # it waits, it is not cut off


async def test_all_clients_together_have_a_share_and_a_peer_gets_to_log_in_all_the_same() -> None:
    requests = AtOnce()
    limits = requests.limits
    greedy = [joined(requests)[0] for _ in range(50)]
    for connection in greedy:
        connection.data_received(REQUEST * 1_000)
    await turns(1_000)
    first = limits.anonymous_requests_first
    assert requests.begun == limits.anonymous_requests_per_s_max + first * len(greedy)
    assert requests.share.short_of() == "quorum.anonymous_requests_per_s_max is 1000"
    before = requests.begun
    joined(requests)[0].data_received(REQUEST * first)
    assert requests.begun == before + first
    requests.share.next_second()
    assert requests.share.short_of() is None
    for connection in greedy:
        connection.tick()
    await turns(1_000)
    assert requests.begun == before + first + limits.anonymous_requests_per_s_max


async def test_a_client_whose_requests_each_come_within_a_second_is_not_too_slow() -> None:
    requests = AtOnce()
    connection, transport = joined(requests)
    connection.data_received(REQUEST[:5])
    for _ in range(4 * requests.limits.frame_deadline_s):
        connection.tick()  # every time the half of another request is there
        connection.data_received(REQUEST[5:] + REQUEST[:5])
        await turns(1)
    ended = transport.aborted
    assert not ended
    refused: list[str] = []
    requests.refused = lambda who, why: refused.append(why)  # type: ignore[method-assign]
    for _ in range(requests.limits.frame_deadline_s + 1):
        connection.tick()
        await turns(1)
    assert "a part of a request" in refused[0]


async def test_what_clients_do_not_take_is_counted_over_all_connections() -> None:
    requests = AtOnce()
    (one, first), (other, second) = joined(requests), joined(requests)
    first.not_taken, second.not_taken = 1_000, 500
    for connection in (one, other):
        connection.data_received(REQUEST)
    assert requests.share.held_bytes == 1_500
    first.not_taken = 10
    one.resume_writing()
    assert requests.share.held_bytes == 510
    other.connection_lost(None)
    assert requests.share.held_bytes == 10


async def test_nothing_is_read_for_a_client_where_others_take_nothing() -> None:
    share = AnonymousShare(requests_per_turn=99, requests_per_s=1, answer_bytes_max=100)
    with share.reading(60):
        assert share.free_bytes == 40
    share.held_bytes = 101
    assert share.free_bytes < 0


async def test_all_clients_together_have_one_share_of_a_turn_and_long_requests_count_more() -> None:
    """Many connections with one long request each held the event loop as one with many did."""
    limits = Answering.limits
    size = COUNTED_BYTES * limits.anonymous_requests_per_turn_of_all // 2 - 1
    answering = AtOnce()
    for _ in range(20):
        connection = ServerConnection(answering)
        connection.connection_made(Transport())
        connection.data_received((SIZE.pack(size) + bytes(size)) * 2)
    assert answering.begun == 2
    begun = []
    for _ in range(30):
        await asyncio.sleep(0)
        begun.append(answering.begun)
    assert max(after - before for before, after in pairwise(begun)) == 2
    assert answering.begun == 40, "nobody is left out"

"""Turns of the event loop and room for bytes, shared by all connections."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from functools import partial

import pytest

from kafka_listener.connections.shares import (
    FIRST_BYTES,
    LONG_REQUEST_BYTES,
    SLICE,
    AnswerRoom,
    RequestRoom,
    Turns,
)

MIB = 1 << 20


async def nothing(_: Sequence[int]) -> None: ...


async def test_long_requests_have_turns_one_after_the_other_and_the_loop_goes_on() -> None:
    turns, order, beats = Turns(), list[str](), 0

    async def long_request(name: str) -> None:
        async def work(some: Sequence[int]) -> None:
            assert len(some) == SLICE
            order.append(name)

        await turns.in_slices(range(3 * SLICE), work)

    async def beat() -> None:
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0)

    beating = asyncio.create_task(beat())
    await asyncio.gather(*(long_request(name) for name in "abc"))
    beating.cancel()
    assert order == ["a", "b", "c"] * 3
    assert beats >= 6, "other work had a turn before each slice but the first ones"


async def test_a_short_request_waits_for_no_long_one() -> None:
    turns, go_on = Turns(), threading.Event()
    long_one = asyncio.create_task(turns.apart(SLICE + 1, go_on.wait))
    await asyncio.sleep(0)
    assert await turns.apart(SLICE, threading.get_ident) == threading.get_ident()
    await turns.in_slices([1, 2], nothing)
    second = asyncio.create_task(turns.apart(SLICE + 1, threading.get_ident))
    await asyncio.sleep(0)
    assert not second.done(), "one at a time"
    go_on.set()
    assert await long_one
    assert await second != threading.get_ident()


async def test_who_leaves_has_the_turn_until_its_thread_has_ended() -> None:
    """Clients that ask for all topics and leave would have a thread each."""
    turns, began, go_on, order = Turns(), threading.Event(), threading.Event(), list[str]()

    def long_work() -> None:
        began.set()
        go_on.wait()
        order.append("left")

    leaving = asyncio.create_task(turns.apart(SLICE + 1, long_work))
    await asyncio.to_thread(began.wait)
    leaving.cancel()
    second = asyncio.create_task(turns.apart(SLICE + 1, partial(order.append, "second")))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not second.done()
    assert not leaving.done()
    go_on.set()
    await second
    assert order == ["left", "second"]
    with pytest.raises(asyncio.CancelledError):
        await leaving


async def test_items_that_are_more_work_have_shorter_slices() -> None:
    slices: list[list[int]] = []

    async def work(some: Sequence[int]) -> None:
        slices.append(list(some))

    await Turns().in_slices([SLICE - 1, 1, 1, 3 * SLICE, 2, SLICE - 2, 1], work, lambda each: each)
    assert slices == [[SLICE - 1, 1], [1], [3 * SLICE], [2, SLICE - 2], [1]]


async def test_a_turn_that_nobody_waits_for_any_more_is_given_up() -> None:
    turns = Turns()

    left = asyncio.create_task(turns.in_slices(range(2 * SLICE), nothing))
    await asyncio.sleep(0)
    left.cancel()
    await asyncio.gather(left, return_exceptions=True)
    await turns.in_slices(range(2 * SLICE), nothing)


def test_answers_are_smaller_where_others_hold_the_room_and_never_none() -> None:
    room = AnswerRoom(128 * MIB)
    with room.share() as first:
        assert first.more(8 * MIB) == 8 * MIB
        first.keep(2 * MIB)
        assert room.held_bytes == 2 * MIB
        slow = []
        for _ in range(1_000):
            share = room.share()
            slow.append(share)
            assert share.__enter__().more(8 * MIB) >= FIRST_BYTES
        assert 100 * MIB < room.held_bytes < 128 * MIB + 1_000 * FIRST_BYTES
        assert first.more(8 * MIB) == FIRST_BYTES
        assert first.more(10) == 10
        assert first.more(-(2**31)) == 0, "a client may ask for less than nothing"
        for share in slow:
            share.__exit__(None, None, None)
        assert room.held_bytes == 2 * MIB + FIRST_BYTES + 10
    assert room.held_bytes == 0


async def test_long_requests_wait_for_room_in_their_order_and_short_ones_do_not() -> None:
    room = RequestRoom(bytes_max=2 * LONG_REQUEST_BYTES)
    begun: list[str] = []
    ends = {name: asyncio.Event() for name in ("first", "large", "third")}

    async def work(name: str, size_bytes: int) -> None:
        async with room.of(size_bytes):
            begun.append(name)
            await ends[name].wait()

    sizes = {"first": LONG_REQUEST_BYTES, "large": 1 << 30, "third": LONG_REQUEST_BYTES}
    tasks = {name: asyncio.create_task(work(name, size)) for name, size in sizes.items()}
    await asyncio.sleep(0)
    async with room.of(LONG_REQUEST_BYTES - 1):
        assert begun == ["first"], "the third does not overtake the one that needs all room"
    ends["first"].set()
    await tasks["first"]
    await asyncio.sleep(0)
    assert begun == ["first", "large"]
    ends["large"].set()
    await tasks["large"]
    ends["third"].set()
    await tasks["third"]
    assert room.held_bytes == 0


async def test_a_client_that_leaves_gives_back_its_room_and_its_place() -> None:
    room = RequestRoom(bytes_max=LONG_REQUEST_BYTES)

    async def work() -> None:
        async with room.of(LONG_REQUEST_BYTES):
            await asyncio.Event().wait()

    at_work, waits, granted = [asyncio.create_task(work()) for _ in range(3)]
    await asyncio.sleep(0)
    waits.cancel()
    await asyncio.wait({waits})
    assert room.held_bytes == LONG_REQUEST_BYTES
    at_work.cancel()
    granted.cancel()  # in the moment in which it would get its room
    await asyncio.wait({at_work, granted})
    assert room.held_bytes == 0
    async with asyncio.timeout(1), room.of(LONG_REQUEST_BYTES):
        pass

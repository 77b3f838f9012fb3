"""Buffers are used again, except where somebody may still look at them."""

from __future__ import annotations

import asyncio

from rlm.data_plane.part_buffers import PartBuffers


def test_a_buffer_given_back_is_lent_again_to_who_needs_its_size() -> None:
    buffers = PartBuffers()
    first = buffers.take(100)
    buffers.give_back(first, memoryview(first))
    assert buffers.kept_bytes == 100
    assert buffers.take(50) is not first
    assert buffers.take(100) is first
    assert buffers.kept_bytes == 0
    assert buffers.take(100) is not first


def test_a_buffer_that_a_connection_still_sends_from_is_never_lent_again() -> None:
    buffers = PartBuffers()
    buffer = buffers.take(100)
    view = memoryview(buffer)
    queued = view[10:20]
    buffers.give_back(buffer, view)
    assert buffers.kept_bytes == 0
    assert buffers.take(100) is not buffer
    queued.release()


def test_a_view_that_was_lent_on_is_no_error() -> None:
    buffers = PartBuffers()
    buffer = buffers.take(100)
    view = memoryview(buffer)
    exported = memoryview(view)
    buffers.give_back(buffer, view)
    assert buffers.kept_bytes == 0
    exported.release()


def test_giving_back_keeps_the_bytes_and_the_length() -> None:
    buffers = PartBuffers()
    buffer = buffers.take(4)
    buffer[:] = b"abcd"
    buffers.give_back(buffer)
    assert buffers.take(4) == b"abcd"


def test_no_more_is_kept_than_allowed() -> None:
    buffers = PartBuffers(kept_bytes_max=250)
    lent = [buffers.take(100) for _ in range(3)]
    for buffer in lent:
        buffers.give_back(buffer)
    assert buffers.kept_bytes == 200


async def test_buffers_outlive_a_copy_for_a_while_and_no_longer() -> None:
    buffers = PartBuffers(kept_s=0.0)
    with buffers.in_use():
        buffers.give_back(buffers.take(100))
        await asyncio.sleep(0)
        assert buffers.kept_bytes == 100
    with buffers.in_use():  # the next copy comes before they are dropped
        await asyncio.sleep(0)
        assert buffers.kept_bytes == 100
    for _ in range(3):
        await asyncio.sleep(0)
    assert buffers.kept_bytes == 0

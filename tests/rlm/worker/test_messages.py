"""Frames between supervisor and worker."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_formats.errors import (
    AlreadyExists,
    Conflict,
    CorruptData,
    InternalError,
    InvalidRequest,
    NotFound,
    RetryLater,
    StrandlineError,
)
from rlm.worker import messages as worker_messages
from rlm.worker.messages import (
    CancelJob,
    Data,
    Failed,
    FromWorker,
    Heartbeat,
    Ready,
    ToWorker,
    Welcome,
    frame,
    in_frames,
    receive,
)
from rsm_backends.store_config import StoreConfig


def reader_of(data: bytes) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    return reader


async def test_messages_arrive_as_they_were_sent() -> None:
    config = StoreConfig(name="main", kind="filesystem", path=Path("/tier"))
    messages: list[ToWorker | FromWorker] = [
        Welcome({"main": config}, 5, 1.5, 4),
        Ready(),
        Data(3, b"bytes"),
        CancelJob(3),
    ]
    reader = reader_of(b"".join(frame(message) for message in messages))
    assert [await receive(reader) for _ in messages] == messages
    assert await receive(reader) is None


@pytest.mark.parametrize(
    "error",
    [
        CorruptData("bad", source="file", position=7),
        Conflict("changed", reason="SOURCE_CHANGED"),
        AlreadyExists("there"),
        InvalidRequest("wrong", field="offset"),
        RetryLater("later", retry_after_ms=5),
        NotFound("gone"),
    ],
)
async def test_errors_keep_what_they_carry(error: StrandlineError) -> None:
    message = await receive(reader_of(frame(Failed(1, error))))
    assert isinstance(message, Failed)
    assert type(message.error) is type(error)
    assert str(message.error) == str(error)
    assert vars(message.error) == vars(error)


@pytest.mark.parametrize("cut", [1, 4, 10])
async def test_a_frame_that_breaks_off_is_the_other_ends_death(cut: int) -> None:
    assert await receive(reader_of(frame(Heartbeat())[:cut])) is None


async def test_an_impossible_length_is_an_error() -> None:
    with pytest.raises(InternalError, match="announced"):
        await receive(reader_of(struct.pack(">IQ", 2**31, 0)))


def test_a_message_over_the_bound_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_messages, "FRAME_BYTES_MAX", 100)
    with pytest.raises(InternalError, match="exceeds a frame"):
        frame(Data(1, bytes(200)))
    with pytest.raises(InternalError, match="exceeds a frame"):
        frame(Failed(1, NotFound("x" * 200)))


@given(st.lists(st.binary(max_size=30), max_size=8), st.integers(1, 20))
def test_parts_of_any_size_go_in_frames_that_are_not_too_large(
    parts: list[bytes], bytes_max: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(worker_messages, "DATA_BYTES_MAX", bytes_max)
        frames = [b"".join(frame) for frame in in_frames(parts)]
    assert b"".join(frames) == b"".join(parts)
    assert all(len(frame) <= bytes_max for frame in frames)

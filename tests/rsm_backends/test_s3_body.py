"""The body of a PUT: the same bytes to the socket, to the signer and to whoever asks for a copy."""

from __future__ import annotations

import io
from typing import Any, cast

import pytest
from aiohttp.abc import AbstractStreamWriter

from kafka_formats.crc32c import Buffer
from rsm_backends.body_pace import BodyPace, pacing
from rsm_backends.s3_body import WRITE_BYTES, MemoryBody

DATA = bytes(range(256)) * 40


class Socket:
    """Keeps what is written, piece by piece."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    async def write(self, piece: Buffer) -> None:
        self.pieces.append(bytes(piece))


def writer(socket: Socket) -> AbstractStreamWriter:
    return cast(AbstractStreamWriter, cast(Any, socket))


@pytest.mark.parametrize("size", [0, 1, WRITE_BYTES, WRITE_BYTES + 1, 2 * WRITE_BYTES + 5])
async def test_everything_is_sent_in_order_and_again_when_asked_again(size: int) -> None:
    data = (DATA * (size // len(DATA) + 1))[:size]
    body = MemoryBody(memoryview(bytearray(data)))
    assert body.size == size
    for _ in range(2):
        socket = Socket()
        await body.write(writer(socket))
        assert b"".join(socket.pieces) == data
        assert all(len(piece) <= WRITE_BYTES for piece in socket.pieces)


async def test_no_more_is_sent_than_the_announced_length() -> None:
    socket = Socket()
    await MemoryBody(DATA).write_with_length(writer(socket), 100)
    assert b"".join(socket.pieces) == DATA[:100]


async def test_the_signer_reads_it_as_a_file() -> None:
    body = MemoryBody(memoryview(DATA))
    assert body.read(10) + body.read() == DATA
    assert body.read(10) == b""
    assert body.tell() == len(DATA)
    assert body.seek(-5, io.SEEK_END) == len(DATA) - 5
    assert body.read() == DATA[-5:]
    assert body.seek(3) == 3
    assert body.seek(4, io.SEEK_CUR) == 7
    assert body.read(2) == DATA[7:9]
    assert await body.as_bytes() == DATA
    assert MemoryBody(b"text").decode() == "text"


async def test_a_paced_body_asks_before_each_piece_and_never_sends_more_than_it_asked_for() -> None:
    socket = Socket()
    asked: list[int] = []

    async def ask(size: int) -> None:
        assert len(b"".join(socket.pieces)) <= sum(asked)
        asked.append(size)

    with pacing(BodyPace(ask, 1_000)):
        body = MemoryBody(DATA[:2_500])
    await body.write(writer(socket))
    assert asked == [1_000, 1_000, 500]
    assert b"".join(socket.pieces) == DATA[:2_500]

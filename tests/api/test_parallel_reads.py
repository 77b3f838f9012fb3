"""Whole segments read by many at once, by clients that keep nothing of them: the memory that this
takes goes by the number of readers, whatever they read.
"""

from __future__ import annotations

import asyncio
import socket
import zlib
from pathlib import Path

from tests.api.test_over_workers import LOG, MIB, WINDOW_BYTES, Served, served
from tests.api.test_server import get

READERS = 8
BUFFER_BYTES = 256 << 10
READER_BYTES_MAX = 2 * WINDOW_BYTES + 2 * MIB
"""Frames that wait and those on their way; the chunk being read and the one being checked."""

OTHER_BYTES = 16 * MIB
"""The readers' own buffers, and what an allocator keeps."""


def forget_peaks(node: Served) -> None:
    """From here on `peak_bytes` counts anew (proc(5), clear_refs)."""
    for pid in node.processes:
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_bytes(node: Served) -> int:
    """The most that this process and the worker had in memory, each at its own time."""
    lines = (
        line
        for pid in node.processes
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))


async def read_from(node: Served, start: int) -> int:
    """Take the segment from `start` on, and keep its CRC-32 only."""
    loop = asyncio.get_running_loop()
    buffer = bytearray(BUFFER_BYTES)
    view = memoryview(buffer)
    with socket.socket() as client:
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", node.server.port))
        request = get(LOG)[:-2] + b"Range: bytes=%d-\r\n\r\n" % start
        await loop.sock_sendall(client, request)
        head = b""
        while b"\r\n\r\n" not in head:
            head += await loop.sock_recv(client, 4_096)
        head, _, first = head.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 206 "), head
        crc, left = zlib.crc32(first), len(node.log) - start - len(first)
        while left:
            count = await loop.sock_recv_into(client, buffer)
            assert count, f"{left} bytes did not come"
            crc, left = zlib.crc32(view[:count], crc), left - count
    return crc


async def test_memory_goes_by_the_number_of_readers_and_not_by_what_they_read(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as node:
        expected = [zlib.crc32(memoryview(node.log)[start:]) for start in range(READERS)]
        assert await read_from(node, 0) == expected[0]  # caches fill
        before = node.resident_bytes()
        forget_peaks(node)
        crcs = await asyncio.gather(*(read_from(node, start) for start in range(READERS)))
        assert crcs == expected
        allowed = READERS * READER_BYTES_MAX + OTHER_BYTES
        assert allowed < READERS * len(node.log) / 2, "too little is read to tell"
        assert peak_bytes(node) - before < allowed

"""What callers ask of a filesystem store, to be run under strace.

    python -m tests.durability.recorded_store ROOT TOLD

Before each step a line `begun KEY=VALUE ...` goes to the file TOLD, after it the same with `done`;
VALUE is the number of an object's content, or - where the key is deleted.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Mapping
from pathlib import Path

from kafka_formats.crc32c import crc32c
from rsm_backends.filesystem import FilesystemStore

SIZE = 5_000
DELETED = "-"
Change = Mapping[str, str]


def content(number: str) -> bytes:
    """Differs from all others in every sector."""
    return (f"content {number} " * SIZE).encode()[:SIZE]


class Caller:
    def __init__(self, store: FilesystemStore, told: Path) -> None:
        self._store = store
        self._descriptor = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def put(self, key: str, number: str, *, create_only: bool = False) -> None:
        data = content(number)
        await self._step(
            {key: number},
            self._store.put(key, data, crc32c=crc32c(data), create_only=create_only),
        )

    async def upload(self, key: str, number: str) -> None:
        await self._step({key: number}, self._upload(key, content(number)))

    async def delete(self, *keys: str) -> None:
        await self._step(dict.fromkeys(keys, DELETED), self._store.delete_many(keys))

    async def _upload(self, key: str, data: bytes) -> None:
        upload_id = await self._store.start_multipart(key)
        half = len(data) // 2
        parts = [
            await self._store.put_part(key, upload_id, number, piece, crc32c=crc32c(piece))
            for number, piece in ((1, data[:half]), (2, data[half:]))
        ]
        await self._store.complete_multipart(key, upload_id, parts, crc32c=crc32c(data))

    async def _step(self, change: Change, work: Awaitable[object]) -> None:
        text = " ".join(f"{key}={value}" for key, value in change.items())
        os.write(self._descriptor, f"begun {text}\n".encode())
        await work
        os.write(self._descriptor, f"done {text}\n".encode())


async def main(root: Path, told: Path) -> None:
    store = FilesystemStore(root)
    caller = Caller(store, told)
    await caller.put("orders/0/a.log", "1", create_only=True)
    await caller.put("orders/0/b.log", "2")
    await caller.put("orders/0/a.log", "3")
    await caller.upload("orders/1/c.log", "4")
    await caller.delete("orders/0/a.log", "orders/0/b.log")
    await caller.put("orders/0/a.log", "5", create_only=True)
    await caller.upload("orders/1/c.log", "6")
    await caller.put("top", "7")
    await caller.delete("orders/1/c.log")
    await caller.delete("orders/1/c.log", "top")
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))

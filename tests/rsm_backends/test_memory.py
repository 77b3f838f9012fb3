"""What the conformance suite cannot see of the memory store."""

from __future__ import annotations

from kafka_formats.crc32c import crc32c
from rsm_backends.memory import MemoryStore
from rsm_backends.streams import read_all


async def test_the_time_of_a_write_is_the_given_clocks() -> None:
    store = MemoryStore(lambda: 1_234_567)
    await store.put("a", b"", crc32c=0)
    assert (await store.head("a")).last_modified_ms == 1_234_567


async def test_a_buffer_changed_after_the_put_changes_nothing_stored() -> None:
    store = MemoryStore(lambda: 0)
    data = bytearray(b"data")
    await store.put("a", data, crc32c=crc32c(b"data"))  # type: ignore[arg-type]  # a careless caller
    data[0] = 0
    assert await read_all(store, "a") == b"data"


async def test_stores_share_nothing() -> None:
    first, second = MemoryStore(lambda: 0), MemoryStore(lambda: 0)
    await first.put("a", b"", crc32c=0)
    assert (await second.list_page("")).objects == ()
    await first.close()

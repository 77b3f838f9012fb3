"""The clocks and the randomness of the pipeline's processes, which other code gets passed in.

The pipeline runs in processes of its own, without the node's composition root.
"""

from __future__ import annotations

import asyncio
import os
import random
import time

from kafka_formats.kafka_uuid import Uuid


def now_ms() -> int:
    """Wall clock, milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def monotonic() -> float:
    """Seconds of a clock that never goes back; only differences are meaningful."""
    return time.monotonic()


async def sleep(seconds: float) -> None:
    """Wait, without blocking the loop."""
    await asyncio.sleep(seconds)


def wait(seconds: float) -> None:
    """Wait by blocking the thread, for tasks, which have no event loop."""
    time.sleep(seconds)


def random_fraction() -> float:
    """A number in [0, 1), for jitter."""
    return random.random()


def new_uuid() -> Uuid:
    """A fresh random Kafka Uuid (version 4)."""
    raw = bytearray(os.urandom(16))
    raw[6] = (raw[6] & 0x0F) | 0x40
    raw[8] = (raw[8] & 0x3F) | 0x80
    return Uuid(bytes(raw))

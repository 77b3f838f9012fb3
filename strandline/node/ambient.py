"""The clocks and the randomness of the process. All other code gets them as callables.

Ruff bans direct uses elsewhere (TID251), so that planners are deterministic and tests set the time.
"""

from __future__ import annotations

import asyncio
import os
import random
import time

from kafka_formats.kafka_uuid import ZERO_UUID, Uuid

_ONE_UUID = Uuid(bytes(15) + b"\x01")


def now_ms() -> int:
    """The wall clock, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def monotonic() -> float:
    """A clock that never goes back, in seconds; only differences have a meaning."""
    return time.monotonic()


async def sleep(seconds: float) -> None:
    """Wait without blocking the event loop."""
    await asyncio.sleep(seconds)


def random_fraction() -> float:
    """A number in [0, 1), for jitter."""
    return random.random()


def new_uuid() -> Uuid:
    """A fresh random Kafka Uuid: never a reserved value, never one whose text starts with `-`.

    Command line tools would read a leading dash as an option (org.apache.kafka.common.Uuid).
    """
    while True:
        raw = bytearray(os.urandom(16))
        raw[6] = (raw[6] & 0x0F) | 0x40
        raw[8] = (raw[8] & 0x3F) | 0x80
        candidate = Uuid(bytes(raw))
        if candidate not in (ZERO_UUID, _ONE_UUID) and not str(candidate).startswith("-"):
            return candidate


def new_nonce() -> str:
    """Thirty-two random hexadecimal characters that can't be guessed."""
    return os.urandom(16).hex()

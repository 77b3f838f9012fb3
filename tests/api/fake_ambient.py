"""Time and chance of the API's fakes."""

from __future__ import annotations

from collections.abc import Iterator

from kafka_formats.kafka_uuid import Uuid


async def no_pause(seconds: float) -> None:
    """Gives nobody a turn."""


def counted_uuids() -> Iterator[Uuid]:
    """Ids in a row."""
    number = 0
    while True:
        number += 1
        yield Uuid(number.to_bytes(16, "big"))

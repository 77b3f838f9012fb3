"""The time when the node last ran, by a clock that it trusted, stored for the next start.

    <data>/clock.json   {"trusted_ms": 1700000000000}

Without it a node could not notice that the clocks were set while it did not run. A file that can't
be read counts as written long ago: deletes then wait for the longest time that they ever do.
"""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

from kafka_formats.errors import CorruptData, RetryLater
from rlm.format.json_fields import Fields
from rlmm.log.disk import OsDisk, replace_file

logger = logging.getLogger(__name__)

FILE_NAME = "clock.json"
FILE_BYTES_MAX = 1_024
LONG_AGO_MS = 0


class ClockFile:
    """The file with the trusted time, one per node. `path` None: the time is kept in memory.
    `remembered_ms`: Unix time in ms, None if there is no file.
    """

    def __init__(self, path: Path | None) -> None:
        """Read the file."""
        self._path = path
        self.remembered_ms: int | None = None if path is None else _load(path)

    async def remember(self, trusted_ms: int) -> None:
        """Write the time to the file; RetryLater if it can't be written."""
        if self._path is not None:
            data = encode_clock(trusted_ms)
            try:
                await asyncio.to_thread(replace_file, OsDisk(), self._path, data)
            except OSError as error:
                raise RetryLater(f"{self._path} can't be written: {error.strerror}") from error
        self.remembered_ms = trusted_ms


def encode_clock(trusted_ms: int) -> bytes:
    return json.dumps({"trusted_ms": trusted_ms}).encode() + b"\n"


def parse_clock(data: bytes, *, source: str) -> int:
    """Decode the stored time; CorruptData for anything that `encode_clock` does not write."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise CorruptData("is not JSON", source=source, position=0) from None
    return Fields(value, source, "").integer("trusted_ms")


def _load(path: Path) -> int | None:
    try:
        with path.open("rb") as file:
            return parse_clock(file.read(FILE_BYTES_MAX), source=str(path))
    except FileNotFoundError:
        return None
    except (OSError, CorruptData) as error:
        logger.error("nothing is deleted for a while: %s can't be read: %s", path, error)
        return LONG_AGO_MS

"""Types of the compiled kernel; meanings stand in `kernel.pyx`."""

from collections.abc import Callable, Collection
from typing import Any, Final

from kafka_formats.crc32c import Buffer
from kafka_formats.record_batch import HeaderFields

SOURCE: Final[str]
"""SHA-256 of the `kernel.pyx` that it was built from, in hexadecimal."""

DONE: Final = 0
FULL: Final = 1
MALFORMED: Final = 2

Part = tuple[Any, int]
"""A buffer, and how many bytes of it are used."""

Column = tuple[int, tuple[Part | None, ...]]
"""How many values are NULL, and the buffers in Arrow's order."""

class Columns:
    def __init__(
        self,
        names: Collection[str],
        *,
        first_offset: int,
        last_offset: int,
        bytes_full: int,
        rows_max: int,
        row_bytes: int,
        header_bytes: int,
        headers_max: int,
        records_bytes_max: int,
        allocate: Callable[[int], Any],
    ) -> None: ...
    def start(
        self,
        records: Buffer,
        *,
        count: int,
        base_offset: int,
        last_delta: int,
        base_timestamp: int,
        append_time: int | None,
    ) -> None: ...
    def plain(
        self, headers: list[HeaderFields], data: Buffer, index: int, at: int, passed: int
    ) -> tuple[int, int, int, int]: ...
    def run(self) -> int: ...
    def collected(self) -> int: ...
    def take(self) -> tuple[int, int, dict[str, Column]]: ...

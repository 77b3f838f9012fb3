"""Types of the compiled scan; meanings stand in `log_scan.pyx`."""

from array import array
from typing import Final

from kafka_formats.crc32c import Buffer

SOURCE: Final[str]
"""SHA-256 of the `log_scan.pyx` that it was built from, in hexadecimal."""

class LogScan:
    def __init__(
        self,
        *,
        start_offset: int,
        first_offset: int,
        end_offset: int,
        log_bytes: int,
        crc: int | None,
        chunk_bytes: int,
        chunk_crcs: array[int],
        epochs: array[int],
        offset_index: bytes,
        time_index: bytes,
    ) -> None: ...
    @property
    def max_timestamp(self) -> int: ...
    def take(self, piece: Buffer) -> list[bytes] | None: ...
    def finish(self) -> bool: ...

"""HTTP byte ranges (RFC 9110, section 14): one range, in all three forms."""

from __future__ import annotations

import re
from dataclasses import dataclass

from starlette.exceptions import HTTPException

from kafka_formats.errors import InvalidRequest

_DIGITS_MAX = 40
_BYTES_UNIT = re.compile(r"bytes\s*=", re.IGNORECASE)
_RANGE = re.compile(rf"bytes=([0-9]{{0,{_DIGITS_MAX}}})-([0-9]{{0,{_DIGITS_MAX}}})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes [start, end) of `size`; `partial` if the client requested a range."""

    start: int
    end: int
    size: int
    partial: bool

    def headers(self) -> dict[str, str]:
        """Content-Length, Accept-Ranges and, for a part, Content-Range."""
        headers = {"Content-Length": str(self.end - self.start), "Accept-Ranges": "bytes"}
        if self.partial:
            headers["Content-Range"] = f"bytes {self.start}-{self.end - 1}/{self.size}"
        return headers


def parse_range(header: str | None, size: int) -> ByteRange:
    """The range of `size` bytes that `header` requests; all of them without a header, or for a unit
    other than bytes. HTTPException 416, with the size in Content-Range: the range has no existing
    byte. InvalidRequest: malformed, or several ranges.
    """
    if header is None or not _BYTES_UNIT.match(header):
        return ByteRange(0, size, size, partial=False)
    match = _RANGE.fullmatch(header.strip())
    first, last = ("", "") if match is None else match.groups()
    if first == last == "" or (first and last and int(last) < int(first)):
        raise InvalidRequest(
            f"{header[:80]!r} is not one byte range: write bytes=FIRST-LAST, bytes=FIRST- or "
            "bytes=-COUNT",
            field="Range",
        )
    if first == "":  # the last N bytes
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), size if last == "" else min(int(last) + 1, size)
    if start >= end:
        raise HTTPException(
            416,
            f"Range: there are {size} bytes, and {header[:80]!r} is outside of them: request "
            f"bytes below {size}",
            headers={"Content-Range": f"bytes */{size}", "Accept-Ranges": "bytes"},
        )
    return ByteRange(start, end, size, partial=True)

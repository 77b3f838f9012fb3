"""Decides which bytes are fetched ahead for readers that read a log range after range. Pure.

A broker reads a segment like this, with a request for each Fetch of its consumer: a range begins
within the one before it, at an entry of the offset index, and ends after it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from rlmm.segment import RemoteLogSegmentId

READER_BYTES_MAX = 16 * 1024 * 1024
"""Limit of the bytes fetched ahead of one reader, which are wasted if it stops. Half of it is
requested at a time. Measured: a request costs a worker 1.5 ms, regardless of its size.
"""

READER_BYTES_MIN = 512 * 1024
"""The least number of bytes fetched ahead of one reader: with a smaller share, none are."""

READERS_MAX = 256
"""Limit of the readers that are remembered; those without a request for longest are forgotten."""

IDLE_S = 10.0
"""Time without a request after which a reader counts as stopped, in seconds."""


@dataclass(frozen=True, slots=True)
class AskedRange:
    """A request for the bytes [start, end) of a log of `log_bytes`; `following` is the next
    segment.
    """

    segment: RemoteLogSegmentId
    start: int
    end: int
    log_bytes: int
    following: RemoteLogSegmentId | None = None


@dataclass(frozen=True, slots=True)
class Ahead:
    """The bytes to fetch ahead: [start, end) of this log, then [0, following_end) of the next."""

    start: int
    end: int
    following_end: int = 0


@dataclass(slots=True, eq=False)
class _Reader:
    """A reader. `until` is the end of the bytes fetched ahead; above the log's own size it counts
    bytes of the next log.
    """

    asked: AskedRange
    seen_s: float
    window: int = 0
    until: int = 0

    def goes_on_with(self, asked: AskedRange) -> bool:
        mine = self.asked
        if asked.segment == mine.segment:
            return mine.start < asked.start <= mine.end < asked.end
        return asked.segment == mine.following and asked.start < max(1, self.until - mine.log_bytes)


class RangesInOrder:
    """The readers of a worker. `bytes_max` limits the bytes fetched ahead of all of them."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._readers: deque[_Reader] = deque()

    def read_before(self, asked: AskedRange) -> int:
        """The end of the bytes of this log that the range's reader has read; 0 for a new reader."""
        reader = self._reader_of(asked)
        return reader.asked.end if reader and reader.asked.segment == asked.segment else 0

    def took(self, asked: AskedRange, now_s: float) -> Ahead | None:
        """The bytes to fetch ahead after a range was read; None for none."""
        while self._readers and abs(now_s - self._readers[0].seen_s) > IDLE_S:
            self._readers.popleft()
        reader = self._reader_of(asked)
        if reader is None:
            self._readers.append(_Reader(asked, now_s, until=asked.end))
            if len(self._readers) > READERS_MAX:
                self._readers.popleft()
            return None
        if asked.segment != reader.asked.segment:
            reader.until -= reader.asked.log_bytes
        reader.asked, reader.seen_s = asked, now_s
        self._readers.remove(reader)
        self._readers.append(reader)
        return self._ahead_of(reader)

    def _ahead_of(self, reader: _Reader) -> Ahead | None:
        asked = reader.asked
        in_order = sum(each.window > 0 or each is reader for each in self._readers)
        share = min(READER_BYTES_MAX, self._bytes_max // in_order)
        reader.window = min(max(2 * reader.window, asked.end - asked.start), share)
        reader.until = max(reader.until, asked.end)
        if share < READER_BYTES_MIN or 2 * (reader.until - asked.end) > reader.window:
            return None
        start, until = reader.until, asked.end + reader.window
        if asked.following is None:
            until = min(until, asked.log_bytes)
        reader.until = max(start, until)
        if until <= start:
            return None
        first, end = min(start, asked.log_bytes), min(until, asked.log_bytes)
        return Ahead(first, end, following_end=max(0, until - asked.log_bytes))

    def _reader_of(self, asked: AskedRange) -> _Reader | None:
        return next((each for each in reversed(self._readers) if each.goes_on_with(asked)), None)

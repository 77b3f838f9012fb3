"""The audit on disk: JSON lines in files of bounded size; the oldest files are deleted.

    <data>/audit/<number, 20 digits>.jsonl

Lines are appended in order, in batches, and synced. A crash may tear the last line, which readers
skip and count. Threads do the file work.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kafka_formats.errors import CorruptData, InvalidRequest, RetryLater
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.audit import WHY_CHARACTERS_MAX, AuditAction, AuditLine
from rlm.control.node_problem import NodeProblem, ProblemArea, ProblemLog
from rlm.format.json_fields import Fields
from rlmm.log.disk import sync_path

logger = logging.getLogger(__name__)

DIRECTORY_NAME = "audit"
WORK = "writing the audit"
SUFFIX = ".jsonl"
NUMBER_DIGITS = 20
WINDOW_BYTES = 256 * 1024
SCAN_BYTES_MAX = 2 * 1024 * 1024
"""The most bytes searched for one page, however few lines match its filters."""
PARTITION_MAX = 2**31 - 1
_ACTION_CHARACTERS_MAX = 100
_NUMBER = re.compile(rf"[0-9]{{{NUMBER_DIGITS}}}")


@dataclass(frozen=True, slots=True)
class AuditLimits:
    """At most `files_max` files of about `file_bytes_max` are kept. At most `pending_max` lines
    wait for the disk; `keep` waits up to `keep_deadline_s`. A failed write is repeated every
    `retry_s`. `close_deadline_s` bounds the last writes at the end.
    """

    file_bytes_max: int = 8 * 2**20
    files_max: int = 16
    pending_max: int = 10_000
    batch_lines_max: int = 256
    keep_deadline_s: float = 10.0
    retry_s: float = 1.0
    close_deadline_s: float = 5.0


@dataclass(frozen=True, slots=True, order=True)
class AuditPosition:
    """A position in the audit: the lines that begin before `offset` in `file`, and older files."""

    file: int
    offset: int


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Lines before `start`, newest first, with the position where each begins. `before` is the
    position for the next page, None if there are no older lines. `unreadable` lines were left out.
    """

    start: AuditPosition
    lines: tuple[AuditLine, ...]
    begins: tuple[AuditPosition, ...]
    before: AuditPosition | None
    unreadable: int


class NotAppendedError(OSError):
    """The disk failed; `left` is the position where the lines that were not written would begin."""

    def __init__(self, left: AuditPosition, error: OSError) -> None:
        super().__init__(error.errno, error.strerror)
        self.left = left


Matches = Callable[[AuditLine], bool]


@dataclass(slots=True)
class _Pending:
    data: bytes
    kept: asyncio.Future[None] | None


class AuditLog:
    """The audit of a node. All methods belong to one event loop; the first line makes the file."""

    def __init__(
        self,
        directory: Path,
        *,
        sleep: Callable[[float], Awaitable[None]],
        limits: AuditLimits | None = None,
    ) -> None:
        self._directory = directory
        self._sleep = sleep
        self._limits = limits or AuditLimits()
        self._pending: deque[_Pending] = deque()
        self._writer: asyncio.Task[None] | None = None
        self._trouble: str | None = None
        self._left: AuditPosition | None = None
        """The position of a failed append, which may have left bytes although it was reported."""
        self._dropped = 0
        self._log = ProblemLog(logger)

    def note(self, line: AuditLine) -> None:
        """Queue the line (an `Audit`); it is written soon, and retried while the disk fails."""
        if len(self._pending) >= self._limits.pending_max:
            self._dropped += 1
            logger.error("audit line lost, the disk does not take it: %s", encode_audit_line(line))
            return
        self._add(_Pending(encode_audit_line(line), None))

    async def keep(self, line: AuditLine) -> None:
        """Return once the line is on the disk (a `KeepAudit`). RetryLater: it may not be."""
        deadline_s = self._limits.keep_deadline_s
        if len(self._pending) >= self._limits.pending_max:
            raise self._not_kept(f"{len(self._pending)} lines wait for the disk already")
        kept = asyncio.get_running_loop().create_future()
        self._add(_Pending(encode_audit_line(line), kept))
        try:
            async with asyncio.timeout(deadline_s):
                await kept
        except TimeoutError:
            raise self._not_kept(f"the disk did not take it within {deadline_s:g} s") from None

    async def newest(self, before: AuditPosition | None, limit: int, matches: Matches) -> AuditPage:
        """At most `limit` lines, newest first; a page may be short or empty before the last one."""
        return await asyncio.to_thread(read_newest, self._directory, before, limit, matches)

    def problems(self) -> tuple[NodeProblem, ...]:
        """The reason why lines are not written, or the number of those lost; empty if neither."""
        if self._trouble is None and not self._dropped:
            return ()
        text = self._trouble or "the audit is written again"
        lost = f"; {self._dropped} lines since the start were lost" if self._dropped else ""
        return (NodeProblem(ProblemArea.AUDIT, None, f"{text}{lost}"),)

    async def close(self) -> None:
        """Write the waiting lines, as far as the deadline allows. Idempotent."""
        writer = self._writer
        if writer is None:
            return
        await asyncio.wait({writer}, timeout=self._limits.close_deadline_s)
        writer.cancel()
        await asyncio.gather(writer, return_exceptions=True)
        if self._pending:
            logger.error("%d audit lines were not written", len(self._pending))

    def _add(self, pending: _Pending) -> None:
        self._pending.append(pending)
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write(), name="write the audit")

    async def _write(self) -> None:
        while self._pending:
            count = min(len(self._pending), self._limits.batch_lines_max)
            batch = [self._pending.popleft() for _ in range(count)]
            data = b"".join(each.data for each in batch)
            try:
                await asyncio.to_thread(
                    append_lines, self._directory, data, self._limits, self._left
                )
            except OSError as error:
                if isinstance(error, NotAppendedError):
                    self._left = error.left
                self._failed(batch, error)
                await self._sleep(self._limits.retry_s)
                continue
            self._trouble = self._left = None
            self._log.works(WORK)
            for each in batch:
                if each.kept is not None and not each.kept.done():
                    each.kept.set_result(None)

    def _failed(self, batch: list[_Pending], error: OSError) -> None:
        """Fail the callers of `keep`, who then do not act; the lines of `note` stay queued."""
        why = f"{self._directory}: {error.strerror or error}"
        self._trouble = f"the audit can't be written, so that nothing is deleted: {why}"
        self._log.failed(WORK, RetryLater(why))
        for each in batch:
            if each.kept is not None and not each.kept.done():
                each.kept.set_exception(self._not_kept(why))
        self._pending.extendleft(each for each in reversed(batch) if each.kept is None)

    def _not_kept(self, why: str) -> RetryLater:
        return RetryLater(
            f"nothing is deleted without a line in the audit, which could not be written: {why}"
        )


def encode_audit_line(line: AuditLine) -> bytes:
    tip = line.partition
    fields: dict[str, object] = {"at_ms": line.at_ms, "action": str(line.action)}
    if tip is not None:
        fields |= {
            "topic": tip.topic, "topic_id": str(tip.topic_id), "partition": tip.partition,
        }  # fmt: skip
    if line.segment_id is not None:
        fields["segment_id"] = str(line.segment_id)
    for name in ("start_offset", "end_offset", "size_bytes"):
        fields[name] = getattr(line, name)
    fields["why"] = line.why[:WHY_CHARACTERS_MAX]
    fields["by"] = line.by[:WHY_CHARACTERS_MAX]
    return json.dumps(fields, separators=(",", ":")).encode("ascii") + b"\n"


def parse_audit_line(data: bytes, *, source: str) -> AuditLine:
    """Parse a line; CorruptData for anything that `encode_audit_line` does not write."""
    try:
        fields = Fields(json.loads(data), source, "")
    except (ValueError, RecursionError):
        raise CorruptData("not a line of JSON", source=source, position=0) from None
    names = set(fields.names())
    partition, segment_id = None, None
    try:
        action = AuditAction(fields.text("action")[:_ACTION_CHARACTERS_MAX])
        if "topic" in names:
            partition = TopicIdPartition(
                fields.text("topic"),
                Uuid.parse(fields.text("topic_id")),
                fields.integer("partition", maximum=PARTITION_MAX),
            )
        if "segment_id" in names:
            segment_id = Uuid.parse(fields.text("segment_id"))
    except (ValueError, InvalidRequest) as error:
        raise CorruptData(f"not an audit line: {error}", source=source, position=0) from None
    return AuditLine(
        at_ms=fields.integer("at_ms"),
        action=action,
        partition=partition,
        segment_id=segment_id,
        start_offset=fields.integer("start_offset", minimum=-1),
        end_offset=fields.integer("end_offset", minimum=-1),
        size_bytes=fields.integer("size_bytes", minimum=-1),
        why=fields.text("why"),
        by=fields.text("by"),
    )


def append_lines(
    directory: Path, data: bytes, limits: AuditLimits, left: AuditPosition | None = None
) -> None:
    """Append whole lines, durably; begin a new file when the last one is full. Blocks.

    `left`: the position of a failed append, whose bytes are cut off first. OSError;
    `NotAppendedError` once a file is open.
    """
    directory.mkdir(exist_ok=True)
    numbers = file_numbers(directory)
    number = numbers[-1] if numbers else 1
    if left is None and numbers and _size(file_path(directory, number)) >= limits.file_bytes_max:
        number += 1
    with file_path(directory, number).open("ab+", buffering=0) as file:
        if left is not None and left.file == number:
            os.ftruncate(file.fileno(), left.offset)
        end = file.seek(0, os.SEEK_END)
        if end > 0 and os.pread(file.fileno(), 1, end - 1) != b"\n":
            data = b"\n" + data  # a crash tore the last line: this one must not be joined to it
        try:
            if end == 0:
                # Also for an existing empty file: a line is lost if its file's name is not synced.
                for old in numbers[: max(0, len({*numbers, number}) - limits.files_max)]:
                    file_path(directory, old).unlink(missing_ok=True)
                sync_path(directory)
            written = 0
            while written < len(data):
                written += file.write(data[written:])
            os.fdatasync(file.fileno())
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(file.fileno(), end)
            raise NotAppendedError(AuditPosition(number, end), error) from error


def read_newest(
    directory: Path, before: AuditPosition | None, limit: int, matches: Matches
) -> AuditPage:
    """The implementation of `AuditLog.newest`. Blocks. RetryLater if the disk fails."""
    lines: list[AuditLine] = []
    begins: list[AuditPosition] = []
    unreadable, left = 0, SCAN_BYTES_MAX
    try:
        numbers = file_numbers(directory)
        start = before or _end(directory, numbers)
        for number in reversed(numbers):
            if number > start.file:
                continue
            path = file_path(directory, number)
            end = min(start.offset, _size(path)) if number == start.file else _size(path)
            while end > 0:
                if left <= 0:
                    older = AuditPosition(number, end)
                    return AuditPage(start, tuple(lines), tuple(begins), older, unreadable)
                pieces, begin = _lines_before(path, end)
                left -= end - begin
                for position, data in pieces:
                    end = position
                    line = _line_of(data, path)
                    unreadable += line is None
                    if line is None or not matches(line):
                        continue
                    lines.append(line)
                    begins.append(AuditPosition(number, end))
                    if len(lines) == limit:
                        oldest = end == 0 and number == numbers[0]
                        last = None if oldest else begins[-1]
                        return AuditPage(start, tuple(lines), tuple(begins), last, unreadable)
                end = begin
    except OSError as error:
        raise RetryLater(f"the audit in {directory} can't be read: {error.strerror}") from None
    return AuditPage(start, tuple(lines), tuple(begins), None, unreadable)


def _end(directory: Path, numbers: list[int]) -> AuditPosition:
    """The position after the last line."""
    if not numbers:
        return AuditPosition(0, 0)
    return AuditPosition(numbers[-1], _size(file_path(directory, numbers[-1])))


def file_numbers(directory: Path) -> list[int]:
    """Numbers of the audit's files, ascending; empty if the directory does not exist."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    stems = (name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))
    return sorted(int(stem) for stem in stems if _NUMBER.fullmatch(stem))


def file_path(directory: Path, number: int) -> Path:
    return directory / f"{number:0{NUMBER_DIGITS}}{SUFFIX}"


def _lines_before(path: Path, end: int) -> tuple[list[tuple[int, bytes]], int]:
    """Whole lines of a window that ends at `end`, last first, each with its position; and the
    position of the first line. A window without a line end counts as one broken line.
    """
    start = max(0, end - WINDOW_BYTES)
    try:
        with path.open("rb") as file:
            data = os.pread(file.fileno(), end - start, start)
    except FileNotFoundError:  # this file, the oldest, was deleted meanwhile
        return [], 0
    first = 0 if start == 0 else data.find(b"\n", 0, len(data) - 1) + 1
    pieces, stop = [], len(data)
    while stop > first:
        begin = max(first, data.rfind(b"\n", first, stop - 1) + 1)
        if data[begin:stop].strip():
            pieces.append((start + begin, data[begin:stop]))
        stop = begin
    return pieces, start + first


def _line_of(data: bytes, path: Path) -> AuditLine | None:
    try:
        return parse_audit_line(data, source=str(path))
    except CorruptData:
        return None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0

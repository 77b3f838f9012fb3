"""The audit on disk: in order, bounded, whole after a crash, and never silently without a line."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.errors import CorruptData, RetryLater
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.audit import WHY_CHARACTERS_MAX, AuditAction, AuditLine
from rlm.control.node_problem import ProblemArea
from rlm.node_files.audit_log import (
    WINDOW_BYTES,
    AuditLimits,
    AuditLog,
    append_lines,
    encode_audit_line,
    file_numbers,
    file_path,
    parse_audit_line,
    read_newest,
)
from tests.rlm.virtual_time import run_virtually

TIP = TopicIdPartition("orders", Uuid(b"t" * 16), 3)
LINE = AuditLine(
    1, AuditAction.OBJECTS_DELETED, TIP, Uuid(b"s" * 16), 0, 9, 100, "retention", "node 1"
)
SMALL = AuditLimits(file_bytes_max=1_000, files_max=3)


def numbered(number: int) -> AuditLine:
    return replace(LINE, at_ms=number)


def everything(directory: Path, limit: int = 7) -> list[int]:
    """Times of all lines, newest first, read in pages."""
    found, before = [], None
    while True:
        page = read_newest(directory, before, limit, lambda _: True)
        found += [line.at_ms for line in page.lines]
        before = page.before
        if before is None:
            return found


@contextmanager
def file_size_limit(size_bytes: int) -> Iterator[None]:
    """A file may not grow further: a write takes what fits, the next fails, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def log_in(directory: Path, limits: AuditLimits | None = None) -> AuditLog:
    return AuditLog(directory, sleep=asyncio.sleep, limits=limits)


@pytest.mark.parametrize(
    "line",
    [
        LINE,
        replace(LINE, segment_id=None, end_offset=-1, size_bytes=-1, why='"\n\u2028 ä'),
        AuditLine(0, AuditAction.COLLECTION, None, None, -1, -1, -1, "", "node 1"),
    ],
)
def test_a_line_is_read_as_it_was_written(line: AuditLine) -> None:
    data = encode_audit_line(line)
    assert data.count(b"\n") == 1
    assert parse_audit_line(data, source="x") == line


def test_a_reason_without_an_end_is_cut() -> None:
    data = encode_audit_line(replace(LINE, why="x" * 10**6))
    assert len(parse_audit_line(data, source="x").why) == WHY_CHARACTERS_MAX


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]\n",
        b'{"at_ms":1}\n',
        encode_audit_line(LINE)[:40],
        encode_audit_line(LINE).replace(b"objects_deleted", b"nothing"),
        encode_audit_line(LINE).replace(str(LINE.segment_id).encode(), b"no id"),
        encode_audit_line(LINE).replace(b'"at_ms":1', b'"at_ms":-1'),
    ],
)
def test_what_is_no_line_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptData):
        parse_audit_line(data, source="x")


def test_lines_come_newest_first_and_the_oldest_files_go(tmp_path: Path) -> None:
    for number in range(100):
        append_lines(tmp_path, encode_audit_line(numbered(number)), SMALL)
    found = everything(tmp_path)
    assert found == list(range(99, 99 - len(found), -1))
    assert len(file_numbers(tmp_path)) == SMALL.files_max
    size = sum(file_path(tmp_path, each).stat().st_size for each in file_numbers(tmp_path))
    assert 2 * SMALL.file_bytes_max <= size <= 3 * (SMALL.file_bytes_max + 300)


def test_a_torn_last_line_takes_no_other_along(tmp_path: Path) -> None:
    append_lines(tmp_path, encode_audit_line(numbered(1)), SMALL)
    torn = encode_audit_line(numbered(2))[:50]
    with file_path(tmp_path, 1).open("ab") as file:
        file.write(torn)
    append_lines(tmp_path, encode_audit_line(numbered(3)), SMALL)
    page = read_newest(tmp_path, None, 10, lambda _: True)
    assert [line.at_ms for line in page.lines] == [3, 1]
    assert page.unreadable == 1


def test_garbage_longer_than_a_window_is_passed(tmp_path: Path) -> None:
    append_lines(tmp_path, encode_audit_line(numbered(1)), AuditLimits())
    with file_path(tmp_path, 1).open("ab") as file:
        file.write(b"x" * (3 * WINDOW_BYTES))
    append_lines(tmp_path, encode_audit_line(numbered(2)), AuditLimits())
    assert everything(tmp_path) == [2, 1]


def test_lines_across_windows_are_whole(tmp_path: Path) -> None:
    lines = 3 * WINDOW_BYTES // len(encode_audit_line(LINE))
    data = b"".join(encode_audit_line(numbered(each)) for each in range(lines))
    append_lines(tmp_path, data, AuditLimits())
    assert everything(tmp_path, limit=1_000) == list(range(lines - 1, -1, -1))


def test_a_filter_that_nothing_fits_ends_in_bounded_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlm.node_files.audit_log.SCAN_BYTES_MAX", 1)
    for number in range(20):
        append_lines(tmp_path, encode_audit_line(numbered(number)), SMALL)
    pages, before = 0, None
    while True:
        page = read_newest(tmp_path, before, 5, lambda line: line.at_ms == -5)
        assert page.lines == ()
        pages += 1
        before = page.before
        if before is None:
            break
    assert pages == len(file_numbers(tmp_path))


@pytest.mark.parametrize("written", [0, 1, 5])
def test_a_page_can_be_read_again_and_from_each_of_its_lines(tmp_path: Path, written: int) -> None:
    """Whatever is written meanwhile, in the same file or in later ones."""
    for number in range(written):
        append_lines(tmp_path, encode_audit_line(numbered(number)), SMALL)
    page = read_newest(tmp_path, None, 10, lambda _: True)
    for number in range(100, 105):
        append_lines(tmp_path, encode_audit_line(numbered(number)), SMALL)
    assert read_newest(tmp_path, page.start, 10, lambda _: True) == page
    assert len(page.lines) == len(page.begins) == written
    for number, begin in enumerate(page.begins, 1):
        assert read_newest(tmp_path, begin, 10, lambda _: True).lines == page.lines[number:]


def test_nothing_written_is_an_empty_page(tmp_path: Path) -> None:
    assert read_newest(tmp_path / "audit", None, 5, lambda _: True).lines == ()


def test_notes_and_kept_lines_are_on_disk_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        audit = log_in(tmp_path)
        audit.note(numbered(1))
        await audit.keep(numbered(2))
        assert everything(tmp_path) == [2, 1]
        audit.note(numbered(3))
        await audit.close()
        assert everything(tmp_path) == [3, 2, 1]

    run_virtually(main)


def test_without_its_line_nothing_may_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was done already is told once the disk takes lines again; nothing is out of order."""
    full = True

    def write(fd: int) -> None:
        if full:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fdatasync", write)

    async def main() -> None:
        nonlocal full
        audit = log_in(tmp_path)
        audit.note(numbered(1))
        with pytest.raises(RetryLater, match="No space left on device"):
            await audit.keep(numbered(2))
        (problem,) = audit.problems()
        assert problem.area is ProblemArea.AUDIT
        full = False
        await audit.keep(numbered(3))
        assert audit.problems() == ()
        await audit.close()

    run_virtually(main)
    assert everything(tmp_path) == [3, 1]


def test_what_a_failed_write_left_goes_before_the_next_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk takes some lines and half of one, and does not give the room back at once."""
    truncate = os.ftruncate

    def refuse(fd: int, length: int) -> None:
        raise OSError(5, "Input/output error")

    async def main() -> None:
        audit = log_in(tmp_path)
        await audit.keep(numbered(1))
        size = file_path(tmp_path, 1).stat().st_size
        monkeypatch.setattr(os, "ftruncate", refuse)
        with file_size_limit(2 * size + size // 2):
            audit.note(numbered(2))
            with pytest.raises(RetryLater, match="File too large"):
                await audit.keep(numbered(3))
        assert file_path(tmp_path, 1).stat().st_size > 2 * size
        monkeypatch.setattr(os, "ftruncate", truncate)
        await audit.keep(numbered(4))
        await audit.close()

    run_virtually(main)
    page = read_newest(tmp_path, None, 10, lambda _: True)
    assert [line.at_ms for line in page.lines] == [4, 2, 1]
    assert page.unreadable == 0


def test_a_file_whose_first_line_failed_has_its_name_durable_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = [OSError(5, "Input/output error")]
    done: list[str] = []

    def sync_directory(_: Path) -> None:
        if fails:
            raise fails.pop()
        done.append("name")

    monkeypatch.setattr("rlm.node_files.audit_log.sync_path", sync_directory)
    monkeypatch.setattr(os, "fdatasync", lambda _: done.append("line"))
    with pytest.raises(OSError, match="Input/output"):
        append_lines(tmp_path, encode_audit_line(numbered(1)), SMALL)
    append_lines(tmp_path, encode_audit_line(numbered(2)), SMALL)
    assert done == ["name", "line"]
    assert everything(tmp_path) == [2]


def test_a_disk_that_hangs_is_told_after_a_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        audit = log_in(tmp_path)

        async def hang(*_: object) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(asyncio, "to_thread", hang)
        with pytest.raises(RetryLater, match="within"):
            await audit.keep(LINE)
        await audit.close()

    run_virtually(main)


def test_lines_that_wait_for_the_disk_are_bounded_and_losses_told(tmp_path: Path) -> None:
    async def main() -> None:
        audit = log_in(tmp_path, replace(SMALL, pending_max=3))
        for number in range(5):
            audit.note(numbered(number))
        with pytest.raises(RetryLater, match="wait for the disk"):
            await audit.keep(LINE)
        await audit.close()
        assert everything(tmp_path) == [2, 1, 0]
        (problem,) = audit.problems()
        assert "2 lines" in problem.text

    run_virtually(main)

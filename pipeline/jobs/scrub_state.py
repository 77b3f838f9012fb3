"""The state file of a scrub: one verdict a line, from which a killed run continues.

A segment with the verdict `ok` is not read again; any other is. A line torn by a crash is cut off.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, Self

from kafka_formats.errors import InvalidRequest
from pipeline.catalogue.tiered_segment import TieredSegment
from pipeline.jobs.scrub_verdict import Outcome, Verdict, verdict_of

HEAD = {"kind": "strandline scrub", "version": 1}


class ScrubState:
    """The state file at `path`; None: no verdict is kept or known."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._lines: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> Self:
        if self._path is None:
            return self
        try:
            with ExitStack() as undo:
                file = undo.enter_context(self._path.open("a+b"))
                self._read(file)
                undo.pop_all()
        except OSError as error:
            raise InvalidRequest(
                f"{self._path} can't be used: {error.strerror}", field="--state"
            ) from None
        self._file = file
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def known(self, segments: Sequence[TieredSegment], *, records: bool) -> list[Verdict]:
        """Verdicts that are still valid: `ok`, from a scrub as thorough as this one."""
        found = []
        for segment in segments:
            line = self._lines.get(str(segment.segment_id.id))
            if line is None:
                continue
            try:
                verdict = verdict_of(segment, line)
            except (KeyError, TypeError, ValueError):
                continue  # of a different program, or of a newer version: the segment is read again
            if verdict.outcome is Outcome.OK and (verdict.records or not records):
                found.append(verdict)
        return found

    def add(self, verdicts: Iterable[Verdict]) -> None:
        """Append verdicts durably."""
        if self._file is None:
            return
        try:
            for verdict in verdicts:
                self._file.write(_encoded(verdict.as_json()))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise InvalidRequest(
                f"{self._path} can't be written: {error.strerror}", field="--state"
            ) from None

    def _read(self, file: BinaryIO) -> None:
        file.seek(0)
        data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        lines = whole.splitlines()
        if data and (not lines or _decoded(lines[0]) != HEAD):
            raise InvalidRequest(
                f"{self._path} is not the state file of a scrub: name a new file", field="--state"
            )
        file.truncate(len(whole))
        if not lines:
            file.write(_encoded(HEAD))
        for line in lines[1:]:
            found = _decoded(line)
            if found is not None:
                self._lines[str(found.get("segment_id"))] = found


def _encoded(line: Mapping[str, object]) -> bytes:
    return json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def _decoded(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None

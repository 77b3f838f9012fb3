"""Formats the log on standard error as text, or as one JSON object per line."""

from __future__ import annotations

import json
import logging
import re
import select
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TextIO

from kafka_formats.errors import StrandlineError
from kafka_formats.properties import parse_meta_properties
from rlm.control.log_levels import area_of
from rlm.control.node_problem import NodeProblem, ProblemArea
from rlmm.data_directory.data_directory import META_PROPERTIES

LogFormat = Literal["text", "json"]
NODE_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
FULL_WAIT_MS = 20
PIECE_CHARACTERS = 1_024
"""Length of one write. It is at most 4096 bytes (PIPE_BUF) in UTF-8, which fit into a pipe that
poll(2) reports as writable.
"""
WORKER_TEXT = "%(asctime)s worker %(process)d %(levelname)s %(message)s"
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
"""Characters that end a line, or that control a terminal."""


class JsonLines(logging.Formatter):
    """Formats a record as one JSON object: `time` (UTC, milliseconds), `level`, `area` (null for a
    library's logger), `logger`, `message`, `node_id` (null before the directory was formatted),
    `pid`, and `exception` with its traceback if the record has one.
    """

    def __init__(self, node_id: int | None) -> None:
        super().__init__()
        self._node_id = node_id

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1_000:03d}Z",
            "level": record.levelname.lower(),
            "area": area_of(record.name),
            "logger": record.name,
            "message": record.getMessage(),
            "node_id": self._node_id,
            "pid": record.process,
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = record.stack_info
        return json.dumps(line)


class TextLines(logging.Formatter):
    """Formats a record as one line of text, followed by the traceback of its exception. Control
    characters are escaped, so that a text of a client in a message can't imitate a log line.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as in logging
        """The line with its control characters escaped as in Python."""
        line = super().formatMessage(record)
        return _CONTROL.sub(lambda found: repr(found[0])[1:-1], line)


class LogOutput(logging.StreamHandler[TextIO]):
    """Writes the log to standard error, and counts lines that could not be written.

    The event loop must not block on its log: if a pipe is full for longer than `FULL_WAIT_MS`, the
    line is lost, or the rest of it, and further lines are lost without a wait until the pipe is
    writable again.
    """

    def __init__(self) -> None:
        super().__init__()
        self._why: str | None = None
        self._lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        try:
            text = self.format(record) + self.terminator
            for at in range(0, len(text), PIECE_CHARACTERS):
                if not self._takes_more():
                    self._lost, self._why = self._lost + 1, "no process reads it"
                    return
                self.stream.write(text[at : at + PIECE_CHARACTERS])
                self.flush()
        except Exception:  # noqa: BLE001 - as in logging
            self.handleError(record)
        else:
            self._why = None

    def _takes_more(self) -> bool:
        """True if a write of PIECE_CHARACTERS will not block."""
        try:
            descriptor = self.stream.fileno()
        except (OSError, ValueError, AttributeError):
            return True  # no file descriptor, or closed: then the write fails
        full = select.poll()
        full.register(descriptor, select.POLLOUT)
        return bool(full.poll(FULL_WAIT_MS if self._why is None else 0))

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - as in logging
        """Keep the reason why a line was not written; logging would print it to the same standard
        error.
        """
        error = sys.exc_info()[1]
        if isinstance(error, OSError) or self.stream.closed:
            self._lost += 1
            self._why = str(error)
        else:
            super().handleError(record)

    def problems(self) -> tuple[NodeProblem, ...]:
        """The problem that the log can't be written, until a line is written again."""
        if self._why is None:
            return ()
        text = (
            f"the log can't be written to standard error ({self._why}); {self._lost} lines were "
            "lost since the start. Restart the node with a standard error that is read: journald, "
            "the container's log, or a file on a disk with free space"
        )
        return (NodeProblem(ProblemArea.LOG, None, text),)


def start_logging(log_format: LogFormat, node_id: int | None, *, text: str) -> LogOutput:
    """Set up the log of this process; `text` is the format of a line that is not JSON."""
    handler = LogOutput()
    as_json = log_format == "json"
    handler.setFormatter(JsonLines(node_id) if as_json else TextLines(text))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.captureWarnings(True)
    return handler


def node_id_in(data_dir: Path) -> int | None:
    """The node id in this data directory; None if it can't be read."""
    path = data_dir / META_PROPERTIES
    try:
        return parse_meta_properties(path.read_bytes(), source=str(path)).node_id
    except (OSError, StrandlineError):
        return None

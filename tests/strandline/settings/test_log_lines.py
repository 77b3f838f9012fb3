"""The log as JSON: one object a line, whatever is in it."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rlm.control.node_problem import ProblemArea
from strandline.settings.log_lines import (
    NODE_TEXT,
    JsonLines,
    LogOutput,
    node_id_in,
    start_logging,
)
from tests.strandline.doctor_home import Home


def line_of(message: object, *arguments: object, name: str = "rlm.copy.copier", **more: Any) -> Any:
    record = logging.LogRecord(name, logging.WARNING, "f.py", 1, message, arguments, None, **more)
    record.created = 1_700_000_000.1239
    record.process = 77
    text = JsonLines(3).format(record)
    assert "\n" not in text
    return json.loads(text)


def test_a_line_says_when_where_and_what() -> None:
    assert line_of("copied %s\n%d", "ä", 5) == {
        "time": "2023-11-14T22:13:20.123Z",
        "level": "warning",
        "area": "tier",
        "logger": "rlm.copy.copier",
        "message": "copied ä\n5",
        "node_id": 3,
        "pid": 77,
    }
    assert line_of("x", name="botocore")["area"] is None


def test_an_exception_stands_in_its_line() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = logging.LogRecord("rlm", logging.ERROR, "f", 1, "bad", (), sys.exc_info())
    text = JsonLines(3).format(record)
    assert "\n" not in text
    exception = json.loads(text)["exception"]
    assert exception.startswith("Traceback")
    assert exception.endswith("ValueError: two\nlines")


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, whose level will be as it was."""
    level = logging.root.level
    yield logging.root
    logging.root.setLevel(level)
    logging.captureWarnings(capture=False)


def test_a_caller_s_text_begins_no_line_of_its_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, root: logging.Logger
) -> None:
    """A plug-in's version may be any text that the holder of a token of the role broker sends."""
    monkeypatch.setattr(root, "handlers", [])
    start_logging("text", 3, text=NODE_TEXT)
    forged = "1.0\n2026-01-01 00:00:00,000 WARNING rlm: DELETED\r\x1b[2J\x85\u2028\u00e4\t."
    root.warning("plug-in %s", forged)
    (line,) = capsys.readouterr().err.splitlines()
    told = r"plug-in 1.0\n2026-01-01 00:00:00,000 WARNING rlm: DELETED\r\x1b[2J\x85\u2028"
    assert line.endswith(told + "\u00e4\t.")


def test_lines_that_cannot_be_written_are_a_problem_until_one_is_written(tmp_path: Path) -> None:
    output = LogOutput()
    record = logging.LogRecord("rlm", logging.ERROR, "f", 1, "said", (), None)
    reading, writing = os.pipe()
    os.close(reading)
    broken = os.fdopen(writing, "w")
    output.setStream(broken)
    output.handle(record)
    output.handle(record)
    (problem,) = output.problems()
    assert problem.area is ProblemArea.LOG
    assert "Broken pipe" in problem.text
    assert "2 lines were lost" in problem.text
    with suppress(BrokenPipeError):
        broken.close()
    output.handle(record)
    assert "3 lines were lost" in output.problems()[0].text
    with (tmp_path / "log").open("w") as whole:
        output.stream = whole
        output.handle(record)
        assert output.problems() == ()
    assert (tmp_path / "log").read_text() == "said\n"


@pytest.mark.parametrize("text", ["said", "é" * 50_000])
def test_a_pipe_that_nobody_reads_holds_nobody_up(text: str) -> None:
    """The event loop writes the log: a write that waits would stop the whole node."""
    output = LogOutput()
    record = logging.LogRecord("rlm", logging.ERROR, "f", 1, text, (), None)
    reading, writing = os.pipe()
    output.setStream(os.fdopen(writing, "w"))

    def fill() -> None:
        while not output.problems():
            output.handle(record)
        output.handle(record)

    filling = threading.Thread(target=fill, daemon=True)
    filling.start()
    filling.join(20)
    assert not filling.is_alive()
    (problem,) = output.problems()
    assert "no process reads it" in problem.text
    assert "2 lines were lost" in problem.text
    while output.problems():
        assert os.read(reading, 1 << 20)
        output.handle(logging.LogRecord("rlm", logging.ERROR, "f", 1, "back", (), None))
    assert os.read(reading, 1 << 20).endswith(b"back\n")
    os.close(reading)
    with suppress(BrokenPipeError):
        output.stream.close()


def test_a_line_that_is_wrong_is_no_problem_of_the_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    output = LogOutput()
    output.handle(logging.LogRecord("rlm", logging.ERROR, "f", 1, "%d", ("no number",), None))
    assert output.problems() == ()


def test_the_node_of_a_directory(tmp_path: Path, formatted: Home) -> None:
    assert node_id_in(formatted.data) == 1
    assert node_id_in(tmp_path / "nothing") is None

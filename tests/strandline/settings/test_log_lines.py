"""The log as JSON: one object a line, whatever is in it."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

from strandline.settings.log_lines import JsonLines, node_id_in
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


def test_the_node_of_a_directory(tmp_path: Path, formatted: Home) -> None:
    assert node_id_in(formatted.data) == 1
    assert node_id_in(tmp_path / "nothing") is None

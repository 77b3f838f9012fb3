"""The file that a command writes its result to, besides the terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from kafka_formats.errors import InvalidRequest

ReportOption = Annotated[
    Path | None, typer.Option(help="Also write the result to this file, as JSON.")
]


def check_report(report: Path | None) -> None:
    """Check that a report can be written, before a command changes something. InvalidRequest if
    `write_report` would fail.
    """
    if report is None:
        return
    try:
        report.open("a").close()
    except OSError as error:
        raise _unwritable(report, error) from None


def write_report(report: Path | None, result: dict[str, Any]) -> None:
    """Write the result, if a file is named. InvalidRequest: it can't be written."""
    if report is None:
        return
    try:
        report.write_text(json.dumps(result, indent=2) + "\n")
    except OSError as error:
        raise _unwritable(report, error) from None


def _unwritable(report: Path, error: OSError) -> InvalidRequest:
    return InvalidRequest(
        f"{report} can't be written ({error.strerror}): name another file", field="--report"
    )

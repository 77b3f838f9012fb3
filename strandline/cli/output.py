"""Tables for people, JSON for scripts, one line for an error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table

NAME_CHARACTERS_MIN = 12
_PIPED_WIDTH = 250
_GAP = 2
"""Columns of space between two columns of a table."""


class _Console(Console):
    """A console that raises BrokenPipeError; Rich's own would end the process here, with the exit
    code of a bug.
    """

    def on_broken_pipe(self) -> None:
        raise  # the BrokenPipeError that Rich has just caught


class _Errors(_Console):
    """Standard error. Once it can't be written, further output to it is dropped, and the command
    goes on: its work and its report do not depend on a reader.
    """

    def _check_buffer(self) -> None:
        try:
            super()._check_buffer()
        except OSError:  # no reader any more, a terminal that hung up, a full disk
            self.quiet = True
            del self._buffer[:]
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())  # for Python's flush


def _console(*, stderr: bool) -> Console:
    """A console as wide as the terminal; without one, wide enough for any table."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PIPED_WIDTH
    return (_Errors if stderr else _Console)(stderr=stderr, highlight=False, width=width)


console = _console(stderr=False)
errors = _console(stderr=True)


def print_json(value: Any) -> None:
    """One JSON document on standard output, keys as the HTTP interface names them."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n")


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    names_first: bool = False,
    spare: str | None = None,
) -> None:
    """Print a plain table, numbers to the right. With `names_first` a row is one line. If it would
    not fit, names in the first column lose their middle; then the column `spare` is left out; then
    the end of the last column.
    """
    table = Table(box=None, pad_edge=False)
    body = [[_text(value) for value in row] for row in rows]
    if names_first:
        columns, body = _in_lines(list(columns), body, spare)
    raw_numeric = [all(_numeric(row[index]) for row in body) for index in range(len(columns))]
    for name, numeric in zip(columns, raw_numeric, strict=True):
        table.add_column(name, justify="right" if numeric and body else "left", overflow="fold")
    for row in body:
        table.add_row(*map(_escape, row))
    console.print(table)


def _in_lines(
    columns: list[str], body: list[list[str]], spare: str | None
) -> tuple[list[str], list[list[str]]]:
    widths = [max(map(len, column)) + _GAP for column in zip(columns, *body, strict=True)]
    name = min(widths[0], NAME_CHARACTERS_MIN + _GAP)
    if spare is not None and name + sum(widths[1:]) - _GAP > console.width:
        at = columns.index(spare)
        del widths[at]
        for row in (columns, *body):
            del row[at]
    left = console.width - sum(widths[1:-1])
    last = max(left - name, len(columns[-1]))
    for row in body:
        row[0] = shortened(row[0], left - widths[-1])
        row[-1] = row[-1] if len(row[-1]) <= last else f"{row[-1][: last - 1]}\u2026"
    return columns, body


def shortened(name: str, characters_max: int) -> str:
    """A long name without its middle, since names differ at their ends; at least
    `NAME_CHARACTERS_MIN` characters are kept.
    """
    kept = max(characters_max, NAME_CHARACTERS_MIN) - 1
    if len(name) <= kept + 1:
        return name
    return f"{name[: kept - kept // 2]}\u2026{name[len(name) - kept // 2 :]}"


def print_text(text: str) -> None:
    """Print `text` unchanged: brackets in it are not Rich markup, and it has no effect as terminal
    codes.
    """
    console.print(_printable(text), markup=False)


def print_line(text: str) -> None:
    """Print one line: cut with an ellipsis at the edge of a terminal, whole in a pipe or a file."""
    if console.is_terminal:
        console.print(_escape(text), no_wrap=True, overflow="ellipsis", crop=True)
    else:
        console.print(_escape(text), soft_wrap=True)


def print_fields(fields: Mapping[str, object]) -> None:
    """Two columns: name, value."""
    table = Table.grid(padding=(0, 2))
    for name, value in fields.items():
        table.add_row(name, _cell(value))
    console.print(table)


def print_effect(fields: Mapping[str, object], *, done: bool) -> None:
    """The fields of a change and, for a dry run, that nothing was changed."""
    print_fields(fields)
    if not done:
        print_text("nothing was changed: --yes does it")


def print_error(message: str) -> None:
    """`error: ...` on standard error; the message itself says what to do."""
    errors.print(f"[red]error:[/red] {_escape(message)}", soft_wrap=True)


def print_warning(message: str) -> None:
    """`warning: ...` on standard error: the answer lacks something."""
    errors.print(f"[yellow]warning:[/yellow] {_escape(message)}", soft_wrap=True)


def human_bytes(count: int | float | None) -> str:
    """1536 -> `1.5 KiB`."""
    if count is None:
        return "-"
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} PiB"


def human_time(timestamp_ms: int | None) -> str:
    """Milliseconds since the epoch -> `2026-01-31 12:00:00Z`; `-` where there is none."""
    if timestamp_ms is None or timestamp_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return moment.strftime("%Y-%m-%d %H:%M:%SZ")


def _cell(value: object) -> str:
    return _escape(_text(value))


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _printable(str(value))


def _escape(text: str) -> str:
    """Escape names from outside, so that they are not read as Rich markup or terminal codes."""
    return _printable(text).replace("[", "\\[")


def _printable(text: str) -> str:
    return "".join(
        char if char.isprintable() or char == "\n" else f"\\x{ord(char):02x}" for char in text
    )


def _numeric(text: str) -> bool:
    return text == "-" or text.replace(",", "").replace(".", "", 1).lstrip("-").isdigit()

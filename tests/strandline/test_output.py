"""What people see fits a terminal of 80 columns."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from strandline.cli import output


def test_a_line_stays_one_line_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = StringIO()
    monkeypatch.setattr(output, "console", Console(file=shown, width=80))
    output.print_line("orders-0  3.0 GiB, 61 s  backing off: " + "the store [main] is away " * 9)
    (line,) = shown.getvalue().splitlines()
    assert len(line) == 80
    assert line.startswith("orders-0  3.0 GiB, 61 s  backing off: the store [main] is away")
    assert line.endswith("\u2026")

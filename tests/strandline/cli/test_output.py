"""Output for people fits a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from inspect import unwrap
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from api.models.topics import PartitionSummary
from rlm.control.reasons import says
from rlm.control.why_not import WhyNot
from rlm.copy.partition_status import PartitionStatus
from strandline.cli import output, query_commands
from tests.api.fakes import copying_status, make_status


def test_a_line_stays_one_line_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "orders-0  3.0 GiB, 61 s  backing off: " + "the store [main] is away " * 9
    shown = StringIO()
    terminal = Console(file=shown, width=80, force_terminal=True, color_system=None)
    monkeypatch.setattr(output, "console", terminal)
    output.print_line(text)
    (line,) = shown.getvalue().splitlines()
    assert len(line) == 80
    assert line.startswith("orders-0  3.0 GiB, 61 s  backing off: the store [main] is away")
    assert line.endswith("\u2026")


def test_a_line_in_a_pipe_or_a_file_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "orders-0  backing off: " + "the store [main] is away, " * 9 + "it is read-only"
    assert printed(monkeypatch, 80, lambda: output.print_line(text)) == [text]


def printed(monkeypatch: pytest.MonkeyPatch, width: int, show: Callable[[], None]) -> list[str]:
    shown = StringIO()
    monkeypatch.setattr(output, "console", Console(file=shown, width=width))
    monkeypatch.setattr(query_commands, "console", output.console)
    show()
    return shown.getvalue().splitlines()


LONG = "production.eu-west-1.payments.settlement-batches-reconciled.v2"


@pytest.mark.parametrize(
    ("name", "characters", "expected"),
    [
        ("orders", 12, "orders"),
        (LONG, 100, LONG),
        (LONG, 20, "production\u2026nciled.v2"),
        (LONG, 3, "produc\u2026ed.v2"),
    ],
)
def test_a_name_loses_its_middle(name: str, characters: int, expected: str) -> None:
    assert output.shortened(name, characters) == expected
    assert len(expected) <= max(characters, output.NAME_CHARACTERS_MIN) or expected == name


def test_a_table_with_a_long_name_has_a_line_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(LONG, 0, "leader", 431, "0", "up to date"), ("[orders]", 11, "follower", 7, "0", "x")]
    columns = ["topic", "p", "role", "copied to", "lag", "state"]

    def show() -> None:
        output.print_table(columns, rows, names_first=True)

    lines = printed(monkeypatch, 80, show)
    assert len(lines) == 3
    assert lines[1].startswith("production.eu-west-")
    assert " ".join(lines[1].split()).endswith("nciled.v2 0 leader 431 0 up to date")
    assert lines[2].startswith("[orders] ")
    assert LONG in printed(monkeypatch, 200, show)[1]


@pytest.mark.parametrize(
    ("why", "age_ms", "at_80"),
    [("waiting_for_lso", 1_344_000, 6), ("blocked", 999_999_999, 6), ("not_included", 0, 7)],
)
def test_a_partition_is_one_line_whatever_waits(
    monkeypatch: pytest.MonkeyPatch, why: str, age_ms: int, at_80: int
) -> None:
    """Bytes that wait make the column of the lag wide, which left no room for the reason."""
    status = PartitionSummary.of_status(replace(make_status(), why_not_copying=WhyNot(why)))
    lag = {"size_bytes": 1_000_000, "segments": 3, "age_ms": age_ms}
    said = status.model_dump(mode="json") | {"lag": lag, "highest_copied_offset": 10**9}
    found = [{"topic": name} | said for name in (LONG, "__consumer_offsets", "[orders]")]

    def show() -> None:
        query_commands._print_partitions(found)

    for width, columns in ((80, at_80), (120, 7)):
        head, *lines = printed(monkeypatch, width, show)
        assert len(lines) == len(found)
        assert len(head.replace("copied to", "offset").split()) == columns
        assert all(f" s  {says(why)[: width - 70]}" in line for line in lines)
        assert lines[2].startswith("[orders] ")


def test_what_waits_is_told_beside_a_long_name(monkeypatch: pytest.MonkeyPatch) -> None:
    partition = {
        "topic": LONG, "partition": 3, "blocked": None, "why_not_copying": "waiting_for_lso",
        "why_not_text": "the last stable offset is 7", "lag": None,
    }  # fmt: skip
    (line,) = printed(monkeypatch, 80, lambda: query_commands.print_waiting([partition]))
    assert line.startswith(
        "production.eu\u2026econciled.v2-3  -  waits for stable offset: the last"
    )


@dataclass
class OneTopic:
    """Answers as a node does whose partitions have these statuses."""

    statuses: list[PartitionStatus]

    def pages(self, _path: str, key: str) -> Iterator[dict[str, Any]]:
        assert key == "partition_list"
        for status in self.statuses:
            yield PartitionSummary.of_status(status).model_dump(mode="json")


@pytest.mark.parametrize(
    ("status", "state", "waits"),
    [
        (make_status(), "backing off", True),
        (copying_status(), "blocked by corrupt data", True),
        (replace(copying_status(), blocked=None), "copying again", True),
        (replace(make_status(), why_not_copying=WhyNot.WAITING_FOR_SLOT), "copying again", True),
        (replace(copying_status(), blocked=None, last_error=None), "copying", False),
    ],
)
def test_partitions_are_shown_in_each_state(
    monkeypatch: pytest.MonkeyPatch, status: PartitionStatus, state: str, waits: bool
) -> None:
    ask = unwrap(query_commands.partitions_command)
    client = OneTopic([status])
    (_, line) = printed(monkeypatch, 120, ask(client, "payments").show)
    assert line.rstrip().endswith(f"  {state}")
    (line,) = printed(monkeypatch, 120, ask(client, "payments", waiting=True).show)
    assert (f"{state}: " in line) == waits
    assert (line == "nothing waits") == (not waits)


def test_a_table_without_rows_has_its_head(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed(monkeypatch, 80, lambda: output.print_table(["t", "p"], [], names_first=True))
    assert [line.split() for line in lines] == [["t", "p"]]

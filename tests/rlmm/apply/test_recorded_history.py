"""What each record of a recorded history does: nodes of two programs must come to the same rows.

A difference here is another meaning of records that somebody's log has. It needs a feature level
(`rlmm/rows/feature_level.py`), finalised once all nodes know it; see docs/OPERATIONS.md for nodes
of different commits before the first release.
"""

from __future__ import annotations

import os

import pytest

from rlmm.apply.apply import apply
from rlmm.records.records import decode
from rlmm.rows.rows import MemoryRows
from rlmm.view.view import digest_of
from tests.rlmm.apply.recorded_history import HISTORIES, names, recorded
from tests.rlmm.simulation_runs import set_small_limits

VERDICTS_REACHED = {
    "ACCEPTED", "CONFLICT", "DIVERGED", "FENCED", "GAP", "GONE", "NO_EFFECT", "SUSPECT"
}  # fmt: skip


def effects(name: str) -> str:
    """A line for each record: offset, kind, verdict, and the digest of all rows after it."""
    rows = MemoryRows()
    lines = []
    for record in recorded(name):
        applied = apply(rows, record)
        rows.write(applied.writes)
        kind = type(decode(record.control_type, record.value, offset=record.offset)).__name__
        digest = digest_of(rows.items()).hex()[:8]
        lines.append(f"{record.offset} {kind} {applied.outcome.verdict.name} {digest}\n")
    return "".join(lines)


@pytest.mark.parametrize("name", names())
def test_recorded_records_have_the_effect_that_they_had(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_small_limits(monkeypatch)
    path = HISTORIES / f"{name}.txt"
    now = effects(name)
    if os.environ.get("STRANDLINE_GOLDEN") == "rewrite":
        path.write_text(now)
    assert path.read_text() == now, "records mean something else: read this file's first lines"


def test_the_histories_reach_the_verdicts() -> None:
    lines = [
        line for name in names() for line in (HISTORIES / f"{name}.txt").read_text().splitlines()
    ]
    assert {line.split()[2] for line in lines} >= VERDICTS_REACHED

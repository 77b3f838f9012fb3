"""The remembered time survives a restart, and fails towards a longer hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_formats.errors import RetryLater
from rlm.node_files.clock_file import FILE_NAME, LONG_AGO_MS, ClockFile

NOW_MS = 1_700_000_000_000


async def test_the_time_survives_a_restart(tmp_path: Path) -> None:
    before = ClockFile(tmp_path / FILE_NAME)
    assert before.remembered_ms is None
    await before.remember(NOW_MS)
    await before.remember(NOW_MS + 1)
    assert ClockFile(tmp_path / FILE_NAME).remembered_ms == NOW_MS + 1


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"trusted_ms": "now"}', '{"trusted_ms": -1}'])
def test_a_file_that_cannot_be_read_counts_as_written_long_ago(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE_NAME).write_text(text)
    assert ClockFile(tmp_path / FILE_NAME).remembered_ms == LONG_AGO_MS


async def test_a_disk_that_takes_nothing_is_told(tmp_path: Path) -> None:
    with pytest.raises(RetryLater, match="can't be written"):
        await ClockFile(tmp_path / "absent" / FILE_NAME).remember(NOW_MS)

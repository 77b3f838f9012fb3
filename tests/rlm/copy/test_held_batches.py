"""Batches of a held segment, window by window."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_formats.record_batch import HEADER_BYTES, Record, encode_batch
from rlm.copy import held_batches
from rlm.copy.held_batches import batches_from


def batch(first: int, last: int) -> bytes:
    records = [Record(each, 0, None, b"%d" % each, ()) for each in range(first, last + 1)]
    return encode_batch(records, base_offset=first, partition_leader_epoch=1)


def test_it_begins_with_the_batch_that_has_the_offset_and_comes_in_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, batches = tmp_path / "held.log", [batch(10, 12), batch(13, 13), batch(17, 19)]
    log.write_bytes(b"".join(batches))
    assert batches_from(log, 0, 0) == (b"".join(batches), 0)
    monkeypatch.setattr(held_batches, "WINDOW_BYTES", 1)
    at = len(batches[0] + batches[1])
    assert batches_from(log, 11, 0) == (batches[0] + batches[1][:HEADER_BYTES], 0)
    assert batches_from(log, 14, len(batches[0])) == (batches[2], at)
    assert batches_from(log, 20, at)[0] == b""


def test_nothing_comes_from_what_is_gone_or_damaged_before_it(tmp_path: Path) -> None:
    log = tmp_path / "held.log"
    assert batches_from(log, 0, 0) == (b"", 0)
    data = bytearray(batch(10, 12) + batch(13, 13))
    data[8:12] = b"\xff" * 4
    log.write_bytes(data)
    assert batches_from(log, 13, 0) == (b"", 0)


def test_a_batch_is_as_large_as_the_setting_says(tmp_path: Path) -> None:
    """A constant of 128 MiB held, whatever `copier.batch_bytes_max` said."""
    log, batches = tmp_path / "held.log", [batch(10, 99), batch(100, 100)]
    log.write_bytes(b"".join(batches))
    large = len(batches[0])
    assert batches_from(log, 100, 0, large) == (batches[1], large)
    assert batches_from(log, 100, 0, large - 1) == (b"", 0)

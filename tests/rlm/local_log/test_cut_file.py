"""The head of a held file, and the indexes beside it."""

from __future__ import annotations

import os
from collections import namedtuple
from pathlib import Path

import pytest

from kafka_formats import transaction_index
from kafka_formats.transaction_index import AbortedTransaction
from rlm.local_log.cut_file import copy_head, cut_beside

LOG = "00000000000000000010.log"


def test_the_head_is_a_file_of_its_own_with_the_time_of_the_last_write(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"0123456789")
    os.utime(source, ns=(5, 7_000))
    copy_head(source, target, 4)
    assert (target.read_bytes(), target.stat().st_mtime_ns) == (b"0123", 7_000)
    assert source.read_bytes() == b"0123456789"
    with pytest.raises(OSError, match="ends too early"):
        copy_head(source, target, 11)


def test_the_broker_has_room_left_behind_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.write_bytes(bytes(100))
    space = namedtuple("space", "f_bavail f_frsize")
    monkeypatch.setattr(os, "statvfs", lambda _: space(199, 1))
    with pytest.raises(OSError, match="No space left"):
        copy_head(source, tmp_path / "target", 100)
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize(("end", "left"), [(20, 2), (15, 1), (11, 0)])
def test_aborted_transactions_behind_the_end_are_not_of_a_cut_segment(
    tmp_path: Path, end: int, left: int
) -> None:
    log, other = tmp_path / LOG, tmp_path / "of the broker"
    entries = AbortedTransaction(1, 5, 14, 14), AbortedTransaction(2, 15, 17, 17)
    whole = transaction_index.encode(entries)
    other.write_bytes(whole)
    os.link(other, log.with_suffix(".txnindex"))
    for suffix in (".index", ".timeindex"):
        log.with_suffix(suffix).touch()
    cut_beside(log, end)
    if left:
        data = log.with_suffix(".txnindex").read_bytes()
        assert transaction_index.parse(data, source="test") == entries[:left]
    assert len(list(tmp_path.iterdir())) == 1 + (left > 0)
    assert other.read_bytes() == whole


def test_a_damaged_index_is_made_anew_by_the_copy(tmp_path: Path) -> None:
    log = tmp_path / LOG
    log.with_suffix(".txnindex").write_bytes(b"?" * 33)
    cut_beside(log, 12)
    assert list(tmp_path.iterdir()) == []

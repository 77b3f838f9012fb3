"""Bytes of a sealed segment that its disk can not read are damage: other replicas have them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.rlm.copy.test_mending import ALL, log, outcome
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.replicas import cluster

__all__ = ["log"]


def lose_bytes(path: Path, lost: range, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that can't read them any more: a read gives what is before them, or fails."""
    inode, pread, preadv = path.stat().st_ino, os.pread, os.preadv

    def readable(descriptor: int, at: int, size: int) -> int:
        if os.fstat(descriptor).st_ino != inode or at >= lost.stop or at + size <= lost.start:
            return size
        if at >= lost.start:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return lost.start - at

    def read(descriptor: int, size: int, at: int) -> bytes:
        return pread(descriptor, readable(descriptor, at, size), at)

    def read_into(descriptor: int, buffers: list[memoryview], at: int) -> int:
        (buffer,) = buffers
        return preadv(descriptor, [buffer[: readable(descriptor, at, len(buffer))]], at)

    monkeypatch.setattr(os, "pread", read)
    monkeypatch.setattr(os, "preadv", read_into)


@pytest.mark.parametrize("at", [0, 30, 100, 400])
def test_bytes_that_can_not_be_read_are_mended_like_a_hole(
    tmp_path: Path, log: KafkaLog, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = cluster(log, b1=ALL, b2=ALL)
    lose_bytes(log.directory / f"{10:020d}.log", range(at, at + 20), monkeypatch)
    seen = outcome(tmp_path, log, brokers)
    assert seen.finished == [(0, 9), (10, 19), (20, 29), (30, 39)]
    assert (seen.lost, seen.offsets) == ((), list(ALL))


def test_bytes_that_can_not_be_read_and_nobody_has_are_not_lost_by_themselves(
    tmp_path: Path, log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_bytes(log.directory / f"{10:020d}.log", range(400, 420), monkeypatch)
    seen = outcome(tmp_path, log, cluster(log, b1=range(5)))
    assert (seen.finished, seen.lost) == ([(0, 9)], ())
    assert "no good batch of offsets 15 to 19" in seen.text
    assert "in batches that can't be read" in seen.text

"""The operating system's files: a sync that failed is never tried again.

After EIO the kernel may have dropped the pages and marked them clean, so that a second sync says
that all is well. `CrashDisk` stands for what this costs; here is the code that really calls it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from kafka_formats.errors import RetryLater
from rlmm.log.committed import encode_proposals
from rlmm.log.disk import OsDisk
from rlmm.log.log_directory import LogDirectory
from rlmm.metadata_log import Proposal
from tests.rlmm.log.appending import append_and_sync


@dataclass
class Syncs:
    """Counts what is synced, by inode; the sync with the number `fails_at` fails, once."""

    fails_at: int = -1
    inodes: list[int] = field(default_factory=list)

    def instead_of(self, sync: Callable[[int], None]) -> Callable[[int], None]:
        def counted(descriptor: int) -> None:
            self.inodes.append(os.fstat(descriptor).st_ino)
            if len(self.inodes) - 1 == self.fails_at:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            sync(descriptor)

        return counted


def append(log: LogDirectory, value: bytes) -> None:
    proposals = [Proposal(None, value)]
    batches = encode_proposals(proposals, base_offset=log.log_end_offset, epoch=1, timestamp_ms=1)
    append_and_sync(log, batches)


def live(home: Path) -> None:
    """Segments roll, recovery points are stored, the log is truncated. Whoever uses the log goes on
    after an error.
    """
    log = LogDirectory.open(OsDisk(), home, view_flushed_end=0, segment_bytes_max=300)
    steps: tuple[Callable[[], object], ...] = (
        *(partial(append, log, b"x" * 90) for _ in range(4)),
        log.store_recovery_point,
        partial(log.truncate_to, 3),
        partial(append, log, b"y"),
        log.store_recovery_point,
    )
    refused: list[Exception] = []
    for step in steps:
        try:
            step()
        except RetryLater as error:
            refused.append(error)
    with suppress(RetryLater):
        log.close()
    if refused:
        raise refused[0]


def test_a_sync_that_failed_is_never_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = watched(monkeypatch)
    live(tmp_path / "whole")
    assert len(whole.inodes) > 12
    for number in range(len(whole.inodes)):
        syncs = watched(monkeypatch, fails_at=number)
        with pytest.raises((RetryLater, OSError)):
            live(tmp_path / f"fails-{number}")
        failed = syncs.inodes[number]
        assert failed not in syncs.inodes[number + 1 :], f"sync {number} was tried again"


def watched(monkeypatch: pytest.MonkeyPatch, *, fails_at: int = -1) -> Syncs:
    syncs = Syncs(fails_at)
    monkeypatch.undo()
    monkeypatch.setattr(os, "fsync", syncs.instead_of(os.fsync))
    monkeypatch.setattr(os, "fdatasync", syncs.instead_of(os.fdatasync))
    return syncs

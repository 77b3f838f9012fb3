"""What most tests of the log do."""

from __future__ import annotations

from collections.abc import Sequence

from rlmm.log.log_directory import EncodedBatch, LogDirectory


def append_and_sync(log: LogDirectory, batches: Sequence[EncodedBatch]) -> None:
    log.append(batches)
    log.sync()

"""Lives of a metadata node, to be run under strace: log, view, flushes, snapshots, an old view.

    python -m tests.durability.recorded_node HOME TOLD [PLANTED_BUG]

After each step a line goes to the file TOLD: the applied offset, the digest, the offset up to which
the view was flushed. Being a write(2), it has its place among the recorded calls: what was told
before it has to survive everything after it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import rlmm.view.view
from rlmm.log.log_directory import LogDirectory
from rlmm.log.log_limits import LogLimits
from rlmm.manager.apply_loop import ApplyLoop
from rlmm.manager.manager import MetadataLimits
from rlmm.records.control_records import LogStart
from rlmm.rows.rows import RowChange
from rlmm.view.view import NOTHING_APPLIED, View
from tests.durability.quorum_node import QuorumNode, open_node
from tests.rlmm.metadata_node import PARTITION, claim, finished, started

LOG_LIMITS = LogLimits(segment_bytes_max=3_000, retain_bytes_max=0)
LIMITS = MetadataLimits(view_flush_records=10_000)
COMMIT_CHANGES = View.commit_changes
LIVES = 3
STEPS = 4


class Witness:
    """Writes down what a caller was told."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def told(self, node: QuorumNode) -> None:
        view = node.view
        self._line = f"{view.applied_offset} {view.digest().hex()}"
        self._write(view.flushed_offset)

    def no_view_any_more(self) -> None:
        """From here on nothing is promised of the view."""
        self._write(NOTHING_APPLIED)

    def _write(self, flushed_offset: int) -> None:
        os.write(self._descriptor, f"{self._line} {flushed_offset}\n".encode())


async def live(home: Path, witness: Witness, boot: int) -> None:
    """Claim, copy a few segments; flush the view, and take a snapshot that cuts the log."""
    node = await open_node(home, boot=boot, limits=LIMITS, log_limits=LOG_LIMITS)
    witness.told(node)
    answer = await node.manager.claim_partition(claim(boot=boot))
    witness.told(node)
    if boot == 1:
        await node.manager.record_log_start(LogStart(PARTITION, answer.token, 1, 0))
        witness.told(node)
    for step in range(STEPS):
        segment = started((boot - 1) * STEPS + step, answer.token, boot=boot)
        await node.manager.add_remote_log_segment_metadata(segment)
        witness.told(node)
        await node.manager.update_remote_log_segment_metadata(finished(segment, boot=boot))
        witness.told(node)
        if step == 1:
            await node.manager._applying.flush()
            witness.told(node)
        if step == 2:
            await node.manager.take_snapshot()
            witness.told(node)
    await node.close()


@contextmanager
def old_view_put_back(home: Path, witness: Witness) -> Iterator[None]:
    """Behind the life inside, the view is the one from before it: older than the log's start."""
    view, kept = home / "view", home.with_name("kept")
    kept.mkdir()
    for path in view.iterdir():
        (kept / path.name).write_bytes(path.read_bytes())
    for path in (*kept.iterdir(), kept, kept.parent):
        sync(path)
    yield
    witness.no_view_any_more()
    view.rename(home.with_name("newer"))
    kept.rename(view)
    for path in (home, home.parent):
        sync(path)


def sync(path: Path) -> None:
    """Not the view's own function, which a planted bug may have emptied."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def never_flushed(view: View, *, busy: bool | None = None) -> None:
    """Bug: the view says that it is flushed and is not."""
    view._flushed_offset = view.applied_offset


async def cut_without_flush(applying: ApplyLoop, *, busy: bool | None = None) -> None:
    """Bug: the log may be cut to what is applied, flushed or not."""
    applying._log.allow_truncation_to(applying._view.applied_offset + 1)


def rows_before_position(
    view: View, changes: Iterable[RowChange], *, applied_offset: int, epoch: int
) -> None:
    """Bug: the applied offset stands in another write than its rows, which reach the disk first."""
    changes = list(changes)
    for key, _, after in changes:
        if after is None:
            view._database.delete(key)
        else:
            view._database.put(key, after)
    view._database.flush()
    COMMIT_CHANGES(view, changes, applied_offset=applied_offset, epoch=epoch)


def plant(bug: str) -> None:
    """Each leaves out one rule of the order between log, view and snapshot."""
    bugs: dict[str, tuple[object, str, object]] = {
        "the view claims a flush": (View, "flush", never_flushed),
        "the log is cut before the flush": (ApplyLoop, "flush", cut_without_flush),
        "rows and offset are written apart": (View, "commit_changes", rows_before_position),
        "the log is never synced": (LogDirectory, "_sync_active", lambda self: None),
        "an installed view is never synced": (rlmm.view.view, "sync_path", lambda path: None),
    }
    mock.patch.object(*bugs[bug]).start()  # which refuses a name that is no more


def main(home: Path, told: Path, bug: str | None) -> None:
    if bug is not None:
        plant(bug)
    witness = Witness(told)
    asyncio.run(live(home, witness, 1))
    with old_view_put_back(home, witness):
        asyncio.run(live(home, witness, 2))
    asyncio.run(live(home, witness, LIVES))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)

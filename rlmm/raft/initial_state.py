"""The state of a replica at its start, read from a *recovered, synced* disk.

An unreadable quorum-state file, a log whose start no snapshot covers and damage below the durable
end are the driver's hard errors: no core is made from them.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlmm.raft.actions import LogCut, PersistedState
from rlmm.raft.messages import NO_VOTERS, SnapshotId, VoterSet


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    snapshot: SnapshotId
    size_bytes: int


@dataclass(frozen=True, slots=True)
class InitialState:
    """`epochs`: (epoch, start offset) of every epoch with a record in the log, ascending.

    `log_start_epoch`: epoch of the record before `log_start_offset`; if that is not known, the
    first epoch in the log. It does not matter when the log starts at 0 or where a snapshot ends.

    `voter_sets`: (offset, set) of every VotersRecord in the log, and that of the newest snapshot at
    its end offset - 1. `format_voters` is what the node was formatted with, used while there is no
    other. `committed_offset`: below it all is known to be committed, by the view or by what was
    stored beside the recovery point (0 if neither).

    `cut` is set if recovery cut the tail *this* time. The driver writes it into quorum-state before
    it removes the damaged tail: a crash in between must find the damage or the memory of it. (Of
    two cuts, the greater one, compared as in `damaged_tail.py`.)
    """

    quorum: PersistedState | None = None
    log_start_offset: int = 0
    log_start_epoch: int = 0
    log_end_offset: int = 0
    epochs: tuple[tuple[int, int], ...] = ()
    snapshots: tuple[StoredSnapshot, ...] = ()
    voter_sets: tuple[tuple[int, VoterSet], ...] = ()
    format_voters: VoterSet = NO_VOTERS
    committed_offset: int = 0
    cut: LogCut | None = None

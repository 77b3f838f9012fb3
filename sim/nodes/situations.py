"""Rare situations, counted: an invariant says nothing about what no run reaches.

`tests/sim/test_nodes.py` states in how many seeds each of them is reached.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rlmm.log.snapshot_files import download_name
from rlmm.metadata_log import SnapshotId
from rlmm.raft.actions import InstallSnapshot, TruncateTo, WriteSnapshotChunk
from sim.nodes.durable import LOG

if TYPE_CHECKING:
    from sim.nodes.machine import Machine, Process

APPLIED_DURING_FLUSH = "records are applied while the view is flushed"
ENDED_DURING_FLUSH = "a process ends while its view is flushed"
DOWNLOADED_AGAIN = "a download begins over with the same snapshot"
SET_ASIDE = "a running node sets a damaged snapshot aside"
LOG_ENDS_WITH_SNAPSHOT = "a snapshot replaces a log that ends where it ends"
LOST_AN_EPOCH = "recovery cuts all of an epoch that was acknowledged"
OVERTAKEN = "a replica goes on behind its snapshot, and a later one is there"
TRUNCATED_DURING_READ = "a log is truncated while it is read for another node"
SITUATIONS = (
    APPLIED_DURING_FLUSH,
    ENDED_DURING_FLUSH,
    DOWNLOADED_AGAIN,
    SET_ASIDE,
    LOG_ENDS_WITH_SNAPSHOT,
    LOST_AN_EPOCH,
    OVERTAKEN,
    TRUNCATED_DURING_READ,
)


class Reached:
    """Counts of the situations that a run has reached."""

    def __init__(self) -> None:
        self.times: Counter[str] = Counter()

    def note(self, situation: str, holds: object = True) -> None:
        if holds:
            self.times[situation] += 1

    def performing(self, machine: Machine, process: Process, action: object) -> None:
        """An action of a core is about to be carried out."""
        match action:
            case WriteSnapshotChunk() if action.position == 0:
                name = download_name(SnapshotId(*action.snapshot))
                self.note(DOWNLOADED_AGAIN, name in machine.disk.list_names(LOG))
            case InstallSnapshot():
                ends = process.copy.end_offset == action.snapshot.end_offset
                self.note(LOG_ENDS_WITH_SNAPSHOT, ends)
            case TruncateTo() if process.log is not None:
                lane = process.life.lanes.get(process.log._reader)
                self.note(TRUNCATED_DURING_READ, lane and (lane.current or lane.jobs))
            case _:
                pass

"""A disk that loses unsynced writes.

The log as written is `batches`; a crash leaves the synced part, any prefix of the operations since,
and perhaps a torn batch behind them. Small files are replaced atomically.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

from rlmm.raft.actions import LogCut, PersistedState
from rlmm.raft.messages import Batch, ReplicaKey, SnapshotId, VoterSet, VotersRecord
from rlmm.raft.replica import InitialState, StoredSnapshot


@dataclass(frozen=True, slots=True)
class SnapshotContent:
    """A snapshot; `digest` stands for its rows, which are `size_bytes` long."""

    snapshot: SnapshotId
    digest: int
    voters: VoterSet
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _Truncate:
    end_offset: int


@dataclass
class Disk:
    """One formatted directory. A wiped disk is a new object with a new key."""

    key: ReplicaKey
    format_voters: VoterSet
    start_offset: int = 0
    start_epoch: int = 0
    quorum: PersistedState | None = None
    snapshots: dict[SnapshotId, SnapshotContent] = field(default_factory=dict)
    view_flushed: int = 0
    batches: list[Batch] = field(default_factory=list)
    synced: list[Batch] = field(default_factory=list)
    unsynced: list[Batch | _Truncate] = field(default_factory=list)
    recovery_point: int = 0
    cut: LogCut | None = None
    lost_synced: bool = False
    """Damage took synced records, which this disk may have acknowledged."""
    taken: list[Batch] = field(default_factory=list)
    """Synced records that damage took."""

    @property
    def end_offset(self) -> int:
        return self.batches[-1].end_offset if self.batches else self.start_offset

    @property
    def synced_end(self) -> int:
        return self.synced[-1].end_offset if self.synced else self.start_offset

    def append(self, batches: tuple[Batch, ...]) -> None:
        for batch in batches:
            assert batch.base_offset == self.end_offset, f"hole at {self.end_offset}: {batch}"
            self.batches.append(batch)
            self.unsynced.append(batch)

    def truncate(self, end_offset: int) -> None:
        _truncate(self.batches, end_offset)
        self.unsynced.append(_Truncate(end_offset))

    def sync(self, operations: int) -> None:
        """Make the first `operations` since the last sync durable."""
        for operation in self.unsynced[:operations]:
            _replay(self.synced, operation)
            self._note_recovery_point(operation)
        del self.unsynced[:operations]

    def _note_recovery_point(self, operation: Batch | _Truncate) -> None:
        """Note a recovery point behind each voter set, which recovery must not cut, and never above
        the log's end.
        """
        if _names_voters(operation) or self.recovery_point > self.synced_end:
            self.recovery_point = self.synced_end

    def cut_head(self, start_offset: int) -> None:
        """Remove whole batches below `start_offset`, durably; a batch begins there."""
        while self.synced and self.synced[0].end_offset <= start_offset:
            self.start_epoch = self.synced[0].epoch
            self.synced.pop(0)
        while self.batches and self.batches[0].end_offset <= start_offset:
            self.batches.pop(0)
        self.start_offset = start_offset

    def replace_by(self, content: SnapshotContent) -> None:
        """Install a snapshot, all or nothing."""
        self.snapshots[content.snapshot] = content
        self.batches, self.synced, self.unsynced = [], [], []
        self.start_offset, self.start_epoch = content.snapshot
        self.recovery_point = min(self.recovery_point, self.start_offset)
        self.view_flushed = max(self.view_flushed, content.snapshot.end_offset)

    def crash(self, random: Random, *, torn: bool) -> None:
        """Keep the synced part and a prefix of the rest; `torn`: half a batch behind it."""
        kept = random.randint(0, len(self.unsynced))
        rest = self.unsynced[kept:]
        old_end, old_epoch = self.end_offset, self._last_epoch()
        self.sync(kept)
        self.unsynced = []
        self.batches = list(self.synced)
        if torn and any(isinstance(operation, Batch) for operation in rest):
            self.cut = LogCut(old_epoch, max(old_end, self.end_offset))

    def damage(self, random: Random) -> None:
        """Lose some of the synced tail above the recovery point, which recovery notices
        and cuts.
        """
        first = max(self.recovery_point, self.view_flushed, self.start_offset)
        doomed = [batch for batch in self.synced if batch.base_offset >= first]
        if not doomed:
            return
        old_end, old_epoch = self.end_offset, self._last_epoch()
        worst = [batch for batch in doomed if _names_voters(batch)]  # none is to be there
        first = random.choice(worst or doomed[-10:]).base_offset
        self.taken += [batch for batch in self.synced if batch.base_offset >= first]
        _truncate(self.synced, first)
        self.batches = list(self.synced)
        self.cut = LogCut(old_epoch, old_end)
        self.lost_synced = True

    def _last_epoch(self) -> int:
        return self.batches[-1].epoch if self.batches else self.start_epoch

    def voter_sets(self) -> tuple[tuple[int, VoterSet], ...]:
        """Voter sets in the log and in the newest snapshot, by offset."""
        found = dict(each for batch in self.batches for each in voter_sets(batch))
        newest = max(self.snapshots, default=None)
        if newest is not None:
            found.setdefault(newest.end_offset - 1, self.snapshots[newest].voters)
        return tuple(sorted(found.items(), key=lambda each: each[0]))

    def _remember_cut(self) -> LogCut | None:
        """Store the cut before the damaged tail goes: after a crash, one of the two must
        be there.
        """
        cut, self.cut = self.cut, None
        if cut is not None:
            stored = self.quorum or PersistedState(0)
            both = [each for each in (cut, stored.cut) if each is not None]
            worst = max(both, key=lambda each: (each.epoch, each.old_end_offset))
            self.quorum = replace(stored, cut=worst)
        return cut

    def initial_state(self) -> InitialState:
        """The state that recovery finds."""
        epochs: list[tuple[int, int]] = []
        for batch in self.batches:
            if not epochs or epochs[-1][0] != batch.epoch:
                epochs.append((batch.epoch, batch.base_offset))
        known = [each for each in self.snapshots if each.end_offset == self.start_offset]
        start_epoch = epochs[0][0] if epochs and not known else self.start_epoch
        cut = self._remember_cut()
        return InitialState(
            quorum=self.quorum,
            log_start_offset=self.start_offset,
            log_start_epoch=known[0].epoch if known else start_epoch,
            log_end_offset=self.end_offset,
            epochs=tuple(epochs),
            snapshots=tuple(
                StoredSnapshot(snapshot, content.size_bytes)
                for snapshot, content in sorted(self.snapshots.items())
            ),
            voter_sets=self.voter_sets(),
            format_voters=self.format_voters,
            committed_offset=self.view_flushed,
            cut=cut,
        )


def voter_sets(batch: Batch) -> list[tuple[int, VoterSet]]:
    """Voter sets in a batch, by offset."""
    return [
        (batch.base_offset + index, record.voters)
        for index, record in enumerate(batch.control)
        if isinstance(record, VotersRecord)
    ]


def _names_voters(operation: Batch | _Truncate) -> bool:
    return isinstance(operation, Batch) and any(
        isinstance(record, VotersRecord) for record in operation.control
    )


def _truncate(batches: list[Batch], end_offset: int) -> None:
    while batches and batches[-1].end_offset > end_offset:
        batches.pop()


def _replay(batches: list[Batch], operation: Batch | _Truncate) -> None:
    if isinstance(operation, _Truncate):
        _truncate(batches, operation.end_offset)
    else:
        batches.append(operation)

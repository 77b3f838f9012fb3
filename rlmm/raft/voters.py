"""Voter sets by offset: the latest one in the log is in force, committed or not (KIP-853)."""

from __future__ import annotations

from rlmm.raft.messages import Batch, LeaderChange, ReplicaKey, Voter, VoterSet, VotersRecord

FORMAT_OFFSET = -1
"""The offset of the set that the node was formatted with: before the log."""


class VoterHistory:
    """The voter sets of a log: an append adds a set, a truncation removes it. `known_from`: below
    that end offset the set is not known, since the log begins above the record that named it, and
    the snapshot that has its set ends later.
    """

    __slots__ = ("_sets", "keys", "known_from", "latest", "latest_offset")

    def __init__(
        self,
        format_voters: VoterSet,
        sets: tuple[tuple[int, VoterSet], ...],
        *,
        known_from: int = 0,
    ) -> None:
        self.known_from = known_from
        self._sets: list[tuple[int, VoterSet]] = [
            (FORMAT_OFFSET, format_voters),
            *sorted(dict(sets).items(), key=lambda each: each[0]),
        ]
        self.latest_offset: int
        self.latest: VoterSet
        self.keys: tuple[ReplicaKey, ...]
        self._refresh()

    def _refresh(self) -> None:
        self.latest_offset, self.latest = self._sets[-1]
        self.keys = self.latest.keys

    @property
    def in_log(self) -> bool:
        """True if the log, or a snapshot before it, has a voter set."""
        return self.latest_offset != FORMAT_OFFSET

    def oldest_first(self) -> tuple[VoterSet, ...]:
        """All known sets, the latest last."""
        return tuple(voters for _, voters in self._sets)

    def append(self, offset: int, voters: VoterSet) -> None:
        assert offset > self.latest_offset
        self._sets.append((offset, voters))
        self._refresh()

    def truncate_to(self, end_offset: int) -> bool:
        """Remove the sets from `end_offset` on; True if the latest set changed."""
        before = self.latest_offset
        while len(self._sets) > 1 and self._sets[-1][0] >= end_offset:
            self._sets.pop()
        self._refresh()
        return self.latest_offset != before

    def reset(self, end_offset: int, voters: VoterSet | None) -> None:
        """Take the set of a snapshot ending at `end_offset`, which replaced the log."""
        del self._sets[1:]
        if voters is not None:
            self._sets.append((end_offset - 1, voters))
        self._refresh()

    def committed(self, high_watermark: int) -> VoterSet:
        """The latest set below the high watermark, which is at least `known_from`."""
        for offset, voters in reversed(self._sets):
            if offset < high_watermark:
                return voters
        return self._sets[0][1]

    def in_force(self, high_watermark: int) -> tuple[ReplicaKey, ...]:
        """The latest voters and, unless these are known to be committed, the previous ones too."""
        for offset, voters in reversed(self._sets):
            if offset < high_watermark or voters.keys != self.keys:
                return (*self.keys, *(key for key in voters.keys if key not in self.keys))
        return self.keys

    def has_uncommitted(self, high_watermark: int) -> bool:
        return self.latest_offset >= high_watermark

    def find(self, key: ReplicaKey) -> Voter | None:
        return next((voter for voter in self.latest.voters if voter.key == key), None)


def with_voter(voters: VoterSet, voter: Voter) -> VoterSet:
    return VoterSet(tuple(sorted((*voters.voters, voter), key=lambda each: each.key)))


def with_endpoints(voters: VoterSet, changed: Voter) -> VoterSet:
    """Return the voters, one of them at other endpoints."""
    return VoterSet(tuple(changed if each.key == changed.key else each for each in voters.voters))


def without_voter(voters: VoterSet, key: ReplicaKey) -> VoterSet:
    return VoterSet(tuple(voter for voter in voters.voters if voter.key != key))


def behind(known: tuple[ReplicaKey, ...], batch: Batch) -> tuple[ReplicaKey, ...] | None:
    """The voters after a batch that continues a log whose voters are `known`; None if it can't
    continue it. A leader begins with the voters of its log, which equals this one up to there, and
    a change adds or removes one. A different quorum with the same cluster id fails here.
    """
    for record in batch.control:
        if isinstance(record, LeaderChange) and known:
            if record.voters != tuple(key.node_id for key in known):
                return None
        elif isinstance(record, VotersRecord):
            keys = record.voters.keys
            if known and len(set(known) ^ set(keys)) > 1:
                return None
            known = keys
    return known

"""Invariants of leaders and votes (Raft) in every world of replicas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from rlmm.raft.actions import PersistedState
from rlmm.raft.messages import Batch, LeaderChange, ReplicaKey, VoteRequest, VotersRecord


class Check(Protocol):
    """Raises, and perhaps remembers, a broken invariant."""

    def __call__(self, holds: bool, name: str, message: str) -> None: ...


class Placed(Protocol):
    """A batch at its place in a log."""

    @property
    def base_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...


P = TypeVar("P", bound=Placed)


def overlapping(batches: Sequence[P], start: int, end: int) -> list[P]:
    """Whole batches of [start, end), found from the end, where new ones are."""
    found = []
    for batch in reversed(batches):
        if batch.end_offset <= start:
            break
        if batch.end_offset <= end:
            found.append(batch)
    found.reverse()
    return found


class Elections:
    """Leaders and votes of each epoch, whatever the hosts themselves remember."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self._leaders: dict[int, ReplicaKey] = {}
        self._votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        self._processes: dict[tuple[ReplicaKey, int], int] = {}

    def leads(self, key: ReplicaKey, epoch: int) -> None:
        known = self._leaders.setdefault(epoch, key)
        self._check(known == key, "one_leader_per_epoch", f"{known} and {key} lead epoch {epoch}")

    def votes(self, key: ReplicaKey, epoch: int, candidate: ReplicaKey) -> None:
        known = self._votes.setdefault((key, epoch), candidate)
        self._check(
            known == candidate,
            "one_vote_per_epoch",
            f"{key} votes for {known} and {candidate} in epoch {epoch}",
        )

    def votes_for_process(self, key: ReplicaKey, request: VoteRequest) -> None:
        """A vote is given. Two processes with the candidate's key must not share it."""
        known = self._processes.setdefault((key, request.epoch), request.incarnation)
        self._check(
            known == request.incarnation,
            "one_process_gets_the_vote",
            f"{key} votes for {request.candidate} in epoch {request.epoch}, started as {known} and "
            f"as {request.incarnation}",
        )

    def forget_votes(self, key: ReplicaKey) -> None:
        """Forget the votes of a replica whose disk is gone but whose name goes on."""
        self._processes = {each: of for each, of in self._processes.items() if each[0] != key}
        self._votes = {each: voted for each, voted in self._votes.items() if each[0] != key}

    def persists(self, name: str, old: PersistedState, new: PersistedState) -> None:
        """Check the state that is about to replace the one on a host's disk."""
        self._check(old.epoch <= new.epoch, "epoch_monotone", f"{name}: {old} becomes {new}")
        if old.epoch == new.epoch:
            self._check(
                old.voted in (None, new.voted) and old.leader_id in (-1, new.leader_id),
                "vote_is_kept",
                f"{name} forgets in one epoch: {old} becomes {new}",
            )

    def voters_change(
        self, name: str, leads_epoch: int, batch: Batch, committed_epochs: Iterable[int]
    ) -> None:
        """Check what a leader of `leads_epoch` (-1: it leads none) appends. A change of the voters
        waits for a commit in the leader's own epoch: an earlier leader's change may be open
        elsewhere.
        """
        kinds = {type(record) for record in batch.control}
        if VotersRecord not in kinds or LeaderChange in kinds or batch.epoch != leads_epoch:
            return
        self._check(
            leads_epoch in committed_epochs,
            "change_behind_own_commit",
            f"{name} changes the voters at {batch.base_offset} and has committed nothing in its "
            f"epoch {leads_epoch}",
        )

    def leader_is_complete(
        self,
        leader: str,
        epoch: int,
        log: Iterable[Placed],
        end_offset: int,
        committed: Mapping[int, Placed],
        committed_in: Mapping[int, int],
    ) -> None:
        """Check that a new leader's `log` has what was committed, except in epochs after
        its own.
        """
        before = [offset for offset, within in committed_in.items() if within < epoch]
        committed_end = committed[max(before)].end_offset if before else 0
        self._check(
            end_offset >= committed_end,
            "leader_completeness",
            f"{leader} leads epoch {epoch} up to {end_offset}, {committed_end} is committed",
        )
        for batch in log:
            if batch.end_offset <= committed_end:
                self._check(
                    committed[batch.base_offset] == batch,
                    "leader_completeness",
                    f"{leader} leads epoch {epoch} with another record: {batch}",
                )

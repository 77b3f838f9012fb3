"""Invariants of the quorum's core, checked where they can first be broken.

one_leader_per_epoch, committed_never_lost, hw_is_durable, same_offset_same_state,
acknowledged_is_durable; and of the protocol: log_matching, leader_completeness, hw_monotone,
one_vote_per_epoch, one_process_gets_the_vote, vote_is_kept, epoch_monotone, persisted_first,
fetch_is_durable, commit_in_own_epoch (Raft, figure 8), no_truncation_below_hw, one_voter_change,
change_behind_own_commit, linearizable_reads, prospective_keeps_epoch, stands_with_its_log,
voters_of_own_log, voters_as_committed, cut_is_kept, done_change_is_committed,
each_truncation_has_a_generation, no_fatal, liveness.
Those of stable leadership are in `leaderships.py` and `pace.py`.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from rlmm.raft import actions as act
from rlmm.raft.messages import (
    Batch,
    FetchRequest,
    PeerRequest,
    ReplicaKey,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
    VoterSet,
)
from rlmm.raft.messages import VotersRecord as Voters
from sim.core.disk import SnapshotContent, voter_sets
from sim.core.elections import Elections, overlapping

if TYPE_CHECKING:
    from sim.core.quorum import World
    from sim.core.replica_host import ReplicaHost


class InvariantError(AssertionError):
    """A broken invariant; `name` is which."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name


def check(holds: bool, name: str, message: str) -> None:
    if not holds:
        raise InvariantError(name, message)


class Auditor:
    """Knows everything that hosts ever showed to the outside."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._elections = Elections(check)
        self._records: dict[tuple[int, int], tuple[Batch, int]] = {}
        self.committed: dict[int, Batch] = {}
        self._committed_in: dict[int, int] = {}
        self.committed_end = 0
        self.acknowledged_end = 0
        self.refused: set[object] = set()
        self.digests: dict[int, int] = {0: 0}
        self._voter_sets: list[tuple[int, VoterSet]] = []

    # ---- leaders and votes

    def started(self, host: ReplicaHost) -> None:
        host.high_watermark = 0

    def role_changed(self, host: ReplicaHost, change: act.RoleChanged) -> None:
        if change.role is act.Role.PROSPECTIVE:
            check(
                host.installing is None,
                "stands_with_its_log",
                f"{host.name} stands for election while {host.installing} replaces its log",
            )
            check(
                change.epoch == host.visible_epoch,
                "prospective_keeps_epoch",
                f"{host.name} asks for pre-votes in {change.epoch}, was in {host.visible_epoch}",
            )
        if change.role is not act.Role.LEADER or change.established:
            return
        key, epoch = host.disk.key, change.epoch
        self._elections.leads(key, epoch)
        stored = host.disk.quorum
        check(
            stored is not None and (stored.epoch, stored.leader_id) == (epoch, key.node_id),
            "persisted_first",
            f"{host.name} leads epoch {epoch}, its disk says {stored}",
        )
        self._elections.leader_is_complete(
            host.name,
            epoch,
            host.disk.batches,
            host.disk.end_offset,
            self.committed,
            self._committed_in,
        )

    def persisting(self, host: ReplicaHost, state: act.PersistedState) -> None:
        if state.voted is not None:
            self._elections.votes(host.disk.key, state.epoch, state.voted)
        if host.disk.quorum is not None:
            self._elections.persists(host.name, host.disk.quorum, state)

    def forgets_its_votes(self, host: ReplicaHost) -> None:
        """Forget a replica's votes: it may vote again, but one leader an epoch remains."""
        self._elections.forget_votes(host.disk.key)

    def responding(self, host: ReplicaHost, request: Request, response: Response) -> None:
        if not isinstance(request, VoteRequest) or not isinstance(response, VoteResponse):
            return
        if request.pre_vote or not response.vote_granted:
            return
        self._elections.votes(host.disk.key, request.epoch, request.candidate)
        self._elections.votes_for_process(host.disk.key, request)
        stored = host.disk.quorum
        check(
            stored is not None
            and (stored.epoch, stored.voted) == (request.epoch, request.candidate),
            "persisted_first",
            f"{host.name} grants a vote in epoch {request.epoch}, its disk says {stored}",
        )

    # ---- the log

    def requesting(self, host: ReplicaHost, request: PeerRequest) -> None:
        if isinstance(request, FetchRequest):
            check(
                request.fetch_offset <= host.disk.synced_end,
                "fetch_is_durable",
                f"{host.name} acknowledges {request.fetch_offset}, {host.disk.synced_end} is "
                "synced",
            )

    def appending(self, host: ReplicaHost, batches: tuple[Batch, ...]) -> None:
        """Check log matching: equal (offset, epoch) is the same batch after the same epoch. A batch
        that a damaged disk forgot may be written again only in another epoch.
        """
        log = host.disk.batches
        before = log[-1].epoch if log else host.disk.start_epoch
        for batch in batches:
            known = self._records.setdefault((batch.base_offset, batch.epoch), (batch, before))
            check(
                known == (batch, before),
                "log_matching",
                f"{host.name} writes {batch} after epoch {before}, elsewhere it is {known}",
            )
            before = batch.epoch
            for record in batch.control:
                if isinstance(record, Voters):
                    self._one_voter_change(host, batch)
            self._elections.voters_change(
                host.name,
                host.visible_epoch if host.visible_role is act.Role.LEADER else -1,
                batch,
                (each.epoch for each in self.committed.values()),
            )

    def _one_voter_change(self, host: ReplicaHost, appended: Batch) -> None:
        open_changes = [
            batch.base_offset
            for batch in host.disk.batches
            if batch.base_offset >= max(self.committed_end, host.high_watermark)
            and any(isinstance(record, Voters) for record in batch.control)
        ]
        check(
            not open_changes,
            "one_voter_change",
            f"{host.name} appends {appended} while the change at {open_changes} is uncommitted",
        )

    def truncating(self, host: ReplicaHost, end_offset: int) -> None:
        check(
            end_offset >= host.high_watermark,
            "no_truncation_below_hw",
            f"{host.name} truncates to {end_offset}, {host.high_watermark} is committed there",
        )

    def next_generation(self, host: ReplicaHost, generation: int) -> None:
        """A truncation, or a snapshot that replaces the log, begins a generation: it tells what was
        begun before from what is begun after.
        """
        check(
            generation > host.generation,
            "each_truncation_has_a_generation",
            f"{host.name} goes from generation {host.generation} to {generation}",
        )

    def voters_of_log(self, host: ReplicaHost) -> None:
        """A truncation takes back the voter sets above it, and no other; behind an installed
        snapshot its set counts.
        """
        core, sets = host.core, host.disk.voter_sets()
        assert core is not None
        latest = sets[-1][1] if sets else host.disk.format_voters
        check(
            core.voters.keys == latest.keys,
            "voters_of_own_log",
            f"{host.name} goes by {core.voters.keys}, its log has {latest.keys}",
        )

    def snapshot_taken(self, host: ReplicaHost, content: SnapshotContent) -> None:
        self._voters_as_committed(host, content.snapshot.end_offset, content.voters)

    def _voters_as_committed(self, host: ReplicaHost, end: int, voters: VoterSet) -> None:
        committed = host.disk.format_voters
        for offset, each in reversed(self._voter_sets):
            if offset < end:
                committed = each
                break
        check(
            voters == committed,
            "voters_as_committed",
            f"{host.name} has the voters {voters.keys} at {end}, committed are {committed.keys}",
        )

    def forgets_cut(self, host: ReplicaHost) -> None:
        """A replica that lost records forgets it once it has again those that are committed. Not
        those that a later leader's log took from it: they may be committed afterwards, without it.
        """
        disk = host.disk
        missing = [
            batch
            for batch in disk.taken
            if self.committed.get(batch.base_offset) == batch
            and batch.end_offset > disk.start_offset
            and batch not in disk.synced
            and not any(
                each.epoch > batch.epoch and each.base_offset <= batch.base_offset
                for each in disk.synced
            )
        ]
        check(
            not missing,
            "cut_is_kept",
            f"{host.name} forgets that it lost the end of its log, and lacks {missing[:1]}",
        )

    def installing(self, host: ReplicaHost, content: SnapshotContent) -> None:
        end = content.snapshot.end_offset
        check(
            end >= host.high_watermark,
            "no_truncation_below_hw",
            f"{host.name} replaces {host.high_watermark} committed records by {content.snapshot}",
        )
        check(
            self.digests.get(end) == content.digest,
            "same_offset_same_state",
            f"{host.name} installs {content}, the state at {end} is {self.digests.get(end)}",
        )

    # ---- what is committed

    def advancing(self, host: ReplicaHost, change: act.AdvanceHighWatermark) -> None:
        end = change.high_watermark
        check(
            end >= host.high_watermark,
            "hw_monotone",
            f"{host.name} goes back from {host.high_watermark} to {end}",
        )
        check(
            change.apply_to <= min(end, host.disk.synced_end),
            "hw_is_durable",
            f"{host.name} applies up to {change.apply_to}, {host.disk.synced_end} is synced",
        )
        for batch in overlapping(host.disk.batches, host.high_watermark, end):
            self._commit(host, batch)
        if host.visible_role is act.Role.LEADER and end > host.high_watermark:
            last = next(b for b in reversed(host.disk.batches) if b.end_offset <= end)
            check(
                last.epoch == host.visible_epoch,
                "commit_in_own_epoch",
                f"{host.name} leads epoch {host.visible_epoch} and commits up to {last}",
            )
            self._durable_on_majority(host, end)
        replica = host.core.replica if host.core is not None else None
        if replica is not None and replica.log.start_offset <= end:
            self._voters_as_committed(host, end, replica.voters.committed(end))
        host.high_watermark = end

    def _commit(self, host: ReplicaHost, batch: Batch) -> None:
        if batch.base_offset < self.committed_end:
            known = self.committed.get(batch.base_offset)
            check(
                known == batch,
                "committed_never_lost",
                f"{host.name} has {batch} committed, elsewhere it is {known}",
            )
            return
        check(
            batch.base_offset == self.committed_end,
            "committed_never_lost",
            f"{host.name} commits {batch}, the end is {self.committed_end}",
        )
        check(
            batch.payload is None or batch.payload not in self.refused,
            "acknowledged_is_durable",
            f"{batch} was refused and is committed",
        )
        before = self.digests[self.committed_end]
        self.committed[batch.base_offset] = batch
        self._committed_in[batch.base_offset] = host.visible_epoch
        self.committed_end = batch.end_offset
        self._voter_sets += voter_sets(batch)
        self.digests[batch.end_offset] = _digest(before, batch)

    def _durable_on_majority(self, host: ReplicaHost, end: int) -> None:
        """Check that a majority of the leader's latest voter set, or of the one before it, has the
        records on disk (KAFKA-16580).
        """
        last = max((b for b in self.committed if b < end), default=None)
        assert last is not None
        batch = self.committed[last]
        core = host.core
        assert core is not None
        sets = {core.voters.keys, core.voters_at(end).keys, core.voters_at(last).keys}
        reached = False
        for keys in sorted(sets):
            holders = [key for key in keys if self._holds(key, batch)]
            reached = reached or len(holders) >= len(keys) // 2 + 1
        check(
            reached,
            "hw_is_durable",
            f"{host.name} commits up to {end}, no majority of {sorted(sets)} has {batch} synced",
        )

    def _holds(self, key: ReplicaKey, batch: Batch) -> bool:
        disk = self._world.disks.get(key)
        if disk is None:
            return False
        if disk.lost_synced or disk.start_offset >= batch.end_offset:
            return True
        return any(each == batch for each in reversed(disk.synced))

    def applied(self, host: ReplicaHost, start: int, end: int, digest: int) -> int:
        """The host's state after applying [start, end)."""
        for batch in overlapping(host.disk.batches, start, end):
            digest = _digest(digest, batch)
            check(
                self.digests.get(batch.end_offset) == digest,
                "same_offset_same_state",
                f"{host.name} at {batch.end_offset}",
            )
        return digest

    # ---- what callers were told

    def proposal_committed(
        self, host: ReplicaHost, payload: object, offset: int, records: int = 1
    ) -> None:
        batch = self.committed.get(offset)
        check(
            offset + records <= self.committed_end,
            "acknowledged_is_durable",
            f"{host.name} acknowledges {records} records at {offset}, and {self.committed_end} is "
            "committed",
        )
        check(
            batch is not None and batch.payload == payload,
            "acknowledged_is_durable",
            f"{host.name} acknowledges {payload} at {offset}, there is {batch}",
        )
        assert batch is not None
        self.acknowledged_end = max(self.acknowledged_end, offset + records)

    def voter_changed(self, host: ReplicaHost, voter: ReplicaKey, *, added: bool) -> None:
        """A leader said that its change is done: the voters that it knows to be committed have
        it.
        """
        assert host.core is not None
        committed = host.core.replica.voters.committed(host.high_watermark).keys
        check(
            (voter in committed) == added,
            "done_change_is_committed",
            f"{host.name} says that {voter} is {'added' if added else 'removed'}, committed are "
            f"{committed}",
        )

    def read_allowed(self, host: ReplicaHost, offset: int, acknowledged_before: int) -> None:
        check(
            acknowledged_before <= offset <= host.applied,
            "linearizable_reads",
            f"{host.name} reads at {offset} (applied {host.applied}), {acknowledged_before} was "
            "acknowledged before the read began",
        )

    def fatal(self, host: ReplicaHost, message: str) -> None:
        raise InvariantError("no_fatal", f"{host.name}: {message}")


def _digest(before: int, batch: Batch) -> int:
    text = f"{batch.base_offset} {batch.epoch} {batch.record_count} {batch.payload}"
    return zlib.crc32(text.encode(), before)

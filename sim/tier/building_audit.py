"""Invariants of the answers to new leaders and to followers that build their log on the tier.

An answer is judged at the moment it is given, by the rows of the node that gives it and the logs
that the leaders wrote: `Answers` promises that it is true at that metadata offset.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kafka_formats.errors import Fenced, NotFound, StrandlineError
from kafka_formats.leader_epoch_checkpoint import Epochs, end_offset_for, epoch_for_offset
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.fetch.follower_start import (
    OFFSET_MOVED_TO_TIERED_STORAGE,
    OFFSET_OUT_OF_RANGE,
    FollowerFetchAnswer,
    FollowerFetchQuery,
    FollowerPlan,
)
from rlm.fetch.leader_transition import LeaderTransitionAnswer, LeaderTransitionQuery
from rlmm.apply.apply import partition_of
from rlmm.apply.outcome import Verdict
from rlmm.partition_state import LostOffsets, Mode
from rlmm.records.control_records import PartitionClaim
from rlmm.records.records import decode
from rlmm.rows import queries
from rlmm.rows.reads import read_segment
from rlmm.segment import OFFSET_MAX, RemoteLogSegmentMetadata, SegmentState
from sim.tier.claimed_logs import Claimed, claimed, log_of_claims
from sim.tier.replica import Batch, Replica

if TYPE_CHECKING:
    from sim.tier.machine import Process
    from sim.tier.partition import Partition
    from sim.tier.world import World

FINISHED = SegmentState.COPY_SEGMENT_FINISHED


@dataclass(frozen=True, slots=True)
class Seen:
    """The tier of a partition as a node sees it: its rows, of any state, and the log that the
    claims tell of. `first` is the first readable offset, `highest` the highest copied one.
    `deleted` are offsets up to which DeleteRecords went.
    """

    first: int
    highest: int
    lost: tuple[LostOffsets, ...]
    rows: tuple[RemoteLogSegmentMetadata, ...]
    log: list[Batch]
    deleted: frozenset[int]

    def serving(self, batch: Batch) -> RemoteLogSegmentMetadata | None:
        """A finished segment that has all of a batch, in the batch's own epoch."""
        for row in self.rows:
            inside = row.start_offset <= batch.base and batch.last <= row.end_offset
            if row.state is FINISHED and inside and _is_of(row, batch):
                return row
        return None

    def batch_at(self, offset: int) -> Batch | None:
        """The batch of the lineage that holds an offset."""
        return next((each for each in self.log if each.base <= offset <= each.last), None)

    def is_lost(self, batch: Batch) -> bool:
        return any(each.start <= batch.last and batch.base <= each.end for each in self.lost)


class BuildingAudit:
    """Checks answers. `foretold` are those to new leaders, until their claim is recorded."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._foretold: dict[
            TopicIdPartition, tuple[LeaderTransitionQuery, LeaderTransitionAnswer]
        ] = {}
        self.kept_promises = 0

    def _check(self, holds: bool, name: str, message: str) -> None:
        self._world.auditor.check(holds, name, message)

    # ---- followers

    def told(
        self,
        process: Process,
        query: FollowerFetchQuery,
        starts: range,
        answer: FollowerFetchAnswer,
    ) -> None:
        """Check a follower's answer as its node gives it; the leader's local log began within
        `starts` (the last one included) meanwhile.
        """
        assert process.view is not None
        start, said = answer.leader_local_log_start_offset, answer.fetch_offset
        told = f"n{process.machine.node_id} tells a follower of {query.partition}: {answer}"
        self._check(answer.metadata_offset == process.view.applied_offset, "true_as_told", told)
        asked = query.leader_local_log_start_offset
        self._check(asked == start or start in starts, "true_as_told", f"{told}, not in {starts}")
        if answer.plan is FollowerPlan.FETCH_LOCALLY:
            here = query.fetch_offset >= start and said == query.fetch_offset
            self._check(here, "nothing_skipped", told)
            return
        self._check(query.fetch_offset < start, "nothing_skipped", told)
        seen = self.seen(process, query.partition)
        if seen is None:
            return
        known = _without_untold(seen, seen.highest + 1, start)
        self._epochs_are_true(known, answer.leader_epochs, said, told)
        up_to = _built_up_to(query, seen, start)
        if answer.plan is FollowerPlan.BUILD_FROM_TIER:
            self._builds(process, seen, query, answer, told)
            below = query.fetch_offset < seen.first
            error = OFFSET_OUT_OF_RANGE if below else OFFSET_MOVED_TO_TIERED_STORAGE
            self._check(answer.error_code == error, "error_of_the_fetch", told)
            return
        self._check(said == start, "nothing_skipped", told)
        # "Nothing is tiered" is said only once a barrier since the start is applied.
        self._check(process.view.applied_offset + 1 >= process.began_at, "barrier_first", told)
        last = seen.batch_at(up_to)
        served = last is not None and seen.serving(last) is not None
        readable = up_to >= seen.first
        self._check(not (served and readable), "tier_is_used", told)

    def _builds(
        self,
        process: Process,
        seen: Seen,
        query: FollowerFetchQuery,
        answer: FollowerFetchAnswer,
        told: str,
    ) -> None:
        world, segment = self._world, answer.segment
        up_to = _built_up_to(query, seen, answer.leader_local_log_start_offset)
        start, said = answer.leader_local_log_start_offset, answer.fetch_offset
        assert segment is not None, told
        assert process.view is not None
        row = read_segment(process.view, segment.segment_id.id)
        self._check(
            row == segment and row.state is FINISHED, "segment_is_there", f"{told}, the row: {row}"
        )
        partition = world.brokers.partition(answer.partition)
        end = max((each.last + 1 for each in partition.truth[query.leader_epoch]), default=0)
        self._check(start <= said <= end, "nothing_skipped", f"{told}, the log ends at {end}")
        first = segment.leader_epochs[0][1]  # below, the checkpoint had no head
        fits = first <= up_to <= answer.valid_until <= segment.end_offset
        self._check(fits and said == answer.valid_until + 1, "nothing_skipped", told)
        within = [
            each for each in seen.log if first <= each.base and each.last <= answer.valid_until
        ]
        diverged = [each for each in within if not _is_of(segment, each)]
        self._check(not diverged, "no_diverged_tail", f"{told}, of another log: {diverged[:1]}")
        exact = answer.valid_until == segment.end_offset
        self._check(answer.producer_snapshot_exact == exact, "snapshot_is_exact", told)
        self._check(answer.log_start_offset == seen.first <= up_to, "log_start_is_true", told)
        now = read_segment(world.auditor.reference.rows, segment.segment_id.id)
        if now is not None and now.state is FINISHED:
            gone = [each for each in world.auditor.keys(segment) if world.auditor.is_gone(each)]
            self._check(not gone, "segment_is_there", f"{told}, without {gone}")

    def refused(
        self, process: Process, tip: TopicIdPartition, epoch: int, error: StrandlineError
    ) -> None:
        """Check an error instead of an answer."""
        assert process.view is not None
        claims = self._world.auditor.claims_until(tip, process.view.applied_offset)
        text = f"n{process.machine.node_id} of {tip} in epoch {epoch}: {error}"
        if isinstance(error, Fenced):
            fenced = any(each.leader_epoch > epoch for each in claims)
            fenced |= "twin" in self._world.faults.kinds  # whose node id is everybody's
            self._check(fenced, "fenced_by_a_later_claim", text)
        elif isinstance(error, NotFound):
            before = [each for each in claims if each.offset < process.began_at]
            known = queries.partition_state(self._world.auditor.reference.rows, tip) is not None
            claims = self._world.auditor.claims_until(tip, process.began_at - 1)
            self._check(not (known and (before or claims)), "barrier_first", text)

    def read(self, answer: FollowerFetchAnswer, epochs: Epochs, seen: Seen) -> None:
        """Check the checkpoint of the segment that the follower was given."""
        segment = answer.segment
        assert segment is not None
        start, end = segment.start_offset, answer.fetch_offset
        within = [each for each in seen.log if start <= each.base and each.last < end]
        for each in within:
            epoch = epoch_for_offset(epochs, each.base)
            self._check(
                epoch in (each.epoch, None),
                "epochs_are_true",
                f"the checkpoint of {segment.segment_id} has {epoch} at {each.base}: {epochs}",
            )

    def restores(self, answer: FollowerFetchAnswer, ends: list[int]) -> None:
        """Check the last offsets of the producers that are restored: a snapshot that a node made
        has those that wrote before the segment's base, too, which is as far back as records tell.
        """
        segment = answer.segment
        assert segment is not None
        last = answer.fetch_offset - 1 if answer.producer_snapshot_exact else segment.end_offset
        self._check(
            all(end <= last for end in ends),
            "snapshot_is_exact",
            f"{segment.segment_id} gives producers up to {ends}, for {answer}",
        )

    def builds(self, partition: Partition, answer: FollowerFetchAnswer, leader: Replica) -> None:
        """Check that the leader takes the fetch of a follower that was built so."""
        last = answer.leader_epochs[-1].epoch if answer.leader_epochs else -1
        end = answer.fetch_offset
        if last >= 0:
            epoch, until = end_offset_for(leader.epochs, last, leader.end)
            self._check(
                epoch == last and until >= end,
                "no_diverged_tail",
                f"{partition.tip}: a follower built by {answer} fetches at {end} in epoch {last}, "
                f"the leader says epoch {epoch} ends at {until}: {leader.epochs}",
            )
        self._check(
            end <= leader.end,
            "nothing_skipped",
            f"{partition.tip}: {answer}, and the leader ends at {leader.end}",
        )

    # ---- leaders

    def leads(
        self, process: Process, query: LeaderTransitionQuery, answer: LeaderTransitionAnswer
    ) -> None:
        """Check a new leader's answer as its node gives it."""
        assert process.view is not None
        at, tip = process.view.applied_offset, query.partition
        told = f"n{process.machine.node_id} tells a leader of {tip}, asked {query}: {answer}"
        state = queries.partition_state(process.view, tip)
        self._check(
            answer.metadata_offset == at and answer.claim == (state.claim if state else None),
            "true_as_told",
            told,
        )
        claims = self._world.auditor.claims_until(tip, at)
        fenced = any(each.leader_epoch > query.leader_epoch for each in claims)
        self._check(not fenced, "fenced_by_a_later_claim", told)
        if state is not None and (state.delete_state or state.mode is not Mode.SIDECAR):
            return
        known = state.lineage if state is not None else ()
        asked = claimed(
            at + 1, query.leader_epoch, query.checkpoint, query.local_log_start_offset, known
        )
        log = self._log(tip, (*claims, asked))
        rows = tuple(queries.list_segments(process.view, tip))
        lost, start = answer.lost_ranges, answer.log_start_offset
        after = Seen(start, answer.highest_copied_offset, lost, rows, log, self._deleted(tip))
        unfinished = {row.segment_id for row in rows if row.state is not FINISHED}
        told_of = {row.segment_id for row in answer.left_overs}
        self._check(told_of == unfinished, "left_overs_are_told", f"{told}, there: {unfinished}")
        self._copied_is_told(after, query, answer, told)
        told_of_log = _without_untold(after, answer.next_offset, query.checkpoint[0].start_offset)
        self._epochs_are_true(told_of_log, answer.lineage, OFFSET_MAX, told)
        self._foretold[tip] = query, answer

    def _copied_is_told(
        self,
        after: Seen,
        query: LeaderTransitionQuery,
        answer: LeaderTransitionAnswer,
        told: str,
    ) -> None:
        highest, start = answer.highest_copied_offset, answer.log_start_offset
        self._check(highest < query.log_end_offset, "copied_is_told", told)
        first, following = max(start, highest + 1), answer.next_offset
        passed = [each for each in range(first, following) if not _holds(answer.lost_ranges, each)]
        waits = following >= first and not _holds(answer.lost_ranges, following)
        self._check(waits and not passed, "next_is_told", told)
        last = after.batch_at(highest)
        if last is not None and highest >= start:
            self._check(last.epoch == answer.highest_copied_epoch, "copied_is_told", told)
        for each in after.log:
            if each.last >= query.log_end_offset:
                break
            served = after.serving(each) is not None
            self._check(not served or each.last <= highest, "copied_is_told", f"{told}, not {each}")
            self._check(
                served
                or each.base < start
                or each.last >= answer.next_offset
                or after.is_lost(each),
                "nothing_skipped",
                f"{told}: nothing has {each.base} to {each.last} of epoch {each.epoch}",
            )

    def claims(self, offset: int, claim: PartitionClaim) -> None:
        """Compare the state behind a claim with what its leader was told of it."""
        foretold = self._foretold.pop(claim.partition, None)
        if foretold is None:
            return
        query, answer = foretold
        same = (query.leader_epoch, query.checkpoint, query.local_log_start_offset) == (
            claim.leader_epoch,
            claim.leader_epochs,
            claim.local_log_start_offset,
        )
        if not same or any(self._between(claim.partition, answer.metadata_offset, offset)):
            return
        state = queries.partition_state(self._world.auditor.reference.rows, claim.partition)
        assert state is not None
        self.kept_promises += 1
        self._check(
            (state.lineage, state.lost_ranges) == (answer.lineage, answer.lost_ranges),
            "claim_does_as_told",
            f"{claim} leads to {state}, told was {answer}",
        )

    def _between(self, tip: TopicIdPartition, first: int, end: int) -> Iterator[bool]:
        """True for each accepted record about a partition between two offsets."""
        world = self._world
        for record in world.log.records[first + 1 : end]:
            accepted = world.auditor.reference.verdicts[record.offset] is Verdict.ACCEPTED
            decoded = decode(record.control_type, record.value)
            yield accepted and partition_of(decoded) == tip

    # ---- the true log

    def _epochs_are_true(self, seen: Seen, epochs: Epochs, end: int, told: str) -> None:
        starts = [start for _, start in epochs]
        self._check(
            starts == sorted(set(starts)) and all(start < end for start in starts),
            "epochs_are_true",
            told,
        )
        first = max(seen.first, 0)
        for each in seen.log:
            if each.base < first or each.last >= end:
                continue
            # What DeleteRecords left of a batch begins its epoch.
            within = [at for at in seen.deleted if each.base < at <= each.last]
            epoch = epoch_for_offset(epochs, max(within, default=each.base))
            self._check(
                epoch == each.epoch,
                "epochs_are_true",
                f"{told}: {each.base} is of epoch {each.epoch}, not {epoch}",
            )

    def seen(self, process: Process, tip: TopicIdPartition) -> Seen | None:
        """The partition by a node's view; None: nothing is known, or it is to be deleted."""
        assert process.view is not None
        state = queries.partition_state(process.view, tip)
        if state is None or state.delete_state is not None or state.claim is None:
            return None
        rows = tuple(queries.list_segments(process.view, tip))
        claims = self._world.auditor.claims_until(tip, process.view.applied_offset)
        highest = -1 if state.highest_copied is None else state.highest_copied[0]
        log = self._log(tip, tuple(claims))
        lost, deleted = state.lost_ranges, self._deleted(tip)
        return Seen(state.first_readable_offset, highest, lost, rows, log, deleted)

    def _deleted(self, tip: TopicIdPartition) -> frozenset[int]:
        return frozenset(at for _, at in self._world.brokers.partition(tip).deletions)

    def _log(self, tip: TopicIdPartition, claims: tuple[Claimed, ...]) -> list[Batch]:
        # A new leader is not told the heads that the tier proves; its claim has them.
        truth = self._world.brokers.partition(tip).truth
        return log_of_claims(truth, claims, comes_back=False)


def _built_up_to(query: FollowerFetchQuery, seen: Seen, start: int) -> int:
    """The last offset that the follower takes from the tier."""
    return max(start - 1, seen.highest) if query.from_last_tiered else start - 1


def _holds(ranges: tuple[LostOffsets, ...], offset: int) -> bool:
    return any(each.start <= offset <= each.end for each in ranges)


def _is_of(row: RemoteLogSegmentMetadata, batch: Batch) -> bool:
    """True if a segment has the offsets of a batch in the batch's epoch."""
    epochs = [epoch for epoch, start in row.leader_epochs if start <= batch.base]
    return bool(epochs) and epochs[-1] == batch.epoch


def _without_untold(seen: Seen, copied_end: int, leaders_start: int) -> Seen:
    """The tier without batches of which nobody may have told: they are lost, or neither copied
    nor on the disk of the leader.
    """
    untold = [range(copied_end, leaders_start), *(range(r.start, r.end + 1) for r in seen.lost)]
    log = [each for each in seen.log if not any(each.base in some for some in untold)]
    return replace(seen, log=log)

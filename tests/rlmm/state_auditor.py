"""Checks the metadata state after every record, against slow and obvious definitions.

Invariants by the names of the design, as far as the metadata state can see them:
fenced_has_no_effect, same_offset_same_state, no_hole, offsets_never_retreat, no_bad_byte,
finished_is_readable, delete_order; and those that have no name there: coverage, totals, tombstones.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import epoch_for_offset
from rlmm.apply import claims as apply_claims
from rlmm.apply import purge as apply_purge
from rlmm.apply.outcome import Verdict
from rlmm.partition_state import Mode, PartitionState
from rlmm.records.control_records import PartitionClaim, SegmentMissing
from rlmm.records.records import MetadataRecord, encode
from rlmm.rows import keys, queries
from rlmm.rows.partitions import PartitionRow
from rlmm.rows.reads import (
    highest_recorded,
    read_measured_time,
    read_partition_row,
    read_record_time,
    read_restart,
)
from rlmm.segment import (
    PartitionDeleteState,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    SegmentState,
)
from tests.rlmm.recomputed_state import (
    best_by_offset,
    coverage_rows,
    expected_coverage_rows,
    kept_counts,
    number_of,
    parts,
    recounted,
)
from tests.rlmm.record_rights import check_rights
from tests.rlmm.shadow_state import ShadowState
from tests.rlmm.simulated_partition import Replica
from tests.rlmm.state_world import World

RECORD_TIME = keys.RECORD_TIME_KEY
COPY_FINISHED = SegmentState.COPY_SEGMENT_FINISHED
DELETE_FINISHED = SegmentState.DELETE_SEGMENT_FINISHED
EPOCHS_MAX = 1_000
DELETE_PARTITION_STARTED = PartitionDeleteState.DELETE_PARTITION_STARTED


class StateAuditor:
    """`contents`: what was in each segment when it was added, epoch by offset. `objects`: the
    segments that have their objects in the store. `known`: the partition was claimed once.
    """

    def __init__(self, world: World, objects: set[int], random: Random) -> None:
        self.world = world
        self.objects = objects
        self.shadow = ShadowState(world, random)
        self.contents: dict[int, dict[int, int]] = {}
        self.buried: dict[bytes, int] = {}
        self.wrong_clock_ms = 0
        self.recreated()

    def recreated(self) -> None:
        """Another partition is looked at from here on."""
        self.known = False
        self.highest: dict[int, int] = {}
        self.served: dict[int, int] = {}

    @property
    def state(self) -> PartitionState | None:
        return queries.partition_state(self.world.rows, self.world.partition)

    @property
    def segments(self) -> list[RemoteLogSegmentMetadata]:
        return list(queries.list_segments(self.world.rows, self.world.partition))

    def claimed_by(self, replica: Replica) -> None:
        """The lineage is what the claimant's broker has, as far as that still has anything."""
        state = self.state
        assert state is not None
        if state.lineage[-1].epoch != replica.checkpoint()[-1].epoch:
            return  # a repetition of a claim that is over
        for offset in range(replica.local_start, len(replica.log)):
            assert epoch_for_offset(state.lineage, offset) == replica.log[offset], "lineage"

    def put(self, record: MetadataRecord) -> Verdict:
        rows = self.world.rows
        before = self.rows_without_time()
        time_ms = read_record_time(rows) or 0
        state, row = self.state, read_partition_row(rows, self.world.partition)
        segments = self.segments
        held_back = self.is_held_back()
        verdict = self.commit(record)
        self.shadow.follow()
        self.check_record_time(time_ms)
        assert not (held_back and deletes(record) and verdict is Verdict.ACCEPTED), (
            "foreign_is_untouched: a delete before the reconciliation"
        )
        if verdict is not Verdict.ACCEPTED:
            assert self.rows_without_time() == before, f"fenced_has_no_effect: {verdict}"
            return verdict
        if state is not None and row is not None:
            found = next((each for each in segments if is_of(each, record)), None)
            # Whether a claim stands is not for the rule that is looked at to say.
            stands = row.claim is not None and not row.claim_voided
            as_stored = replace(
                state,
                claim=row.claim if stands else None,
                voided_claim=None if stands else row.claim,
            )
            check_rights(record, as_stored, found, read_measured_time(rows).ms)
            if isinstance(record, PartitionClaim):
                self.check_limit(record, state, row)
        self.check_state(record, state)
        return verdict

    def is_held_back(self) -> bool:
        """Restarted from a snapshot, and not compared with the store yet."""
        restart = read_restart(self.world.rows)
        return restart is not None and not restart.is_reconciled

    def restarted(self, random: Random) -> None:
        """The world's rows are those of a snapshot: what was known since is forgotten."""
        rows = self.world.rows
        self.shadow = ShadowState(self.world, random)
        self.recreated()
        self.known = self.state is not None
        self.buried = {key: at for key, at in self.buried.items() if rows.get(key) is not None}
        for epoch in range(EPOCHS_MAX):
            highest = highest_recorded(rows, self.world.partition, epoch)
            if highest is not None:
                self.highest[epoch] = highest

    def commit(self, record: MetadataRecord) -> Verdict:
        proposal = encode(record)
        self.world.time_ms += self.wrong_clock_ms
        applied = self.world.commit(proposal.control_type, proposal.value)
        self.world.time_ms -= self.wrong_clock_ms
        self.wrong_clock_ms = 0
        return applied.outcome.verdict

    def rows_without_time(self) -> list[tuple[bytes, bytes]]:
        return [row for row in self.world.rows.items() if row[0] != RECORD_TIME]

    def check_record_time(self, before_ms: int) -> None:
        time_ms = read_record_time(self.world.rows) or 0
        assert before_ms <= time_ms, "record time never goes back"
        assert before_ms == 0 or time_ms <= before_ms + 3_600_000, "record time steps"

    def check_limit(self, claim: PartitionClaim, before: PartitionState, row: PartitionRow) -> None:
        """A claim that uncovers a lot needs an admin, who says how far it may cut."""
        if before.highest_copied is None:
            return
        state = self.state
        assert state is not None
        gone = [
            offset
            for offset in range(max(before.log_start_offset, 0), before.highest_copied[0] + 1)
            if epoch_for_offset(before.lineage, offset) is not None
            and epoch_for_offset(before.lineage, offset) != epoch_for_offset(state.lineage, offset)
            and not any(lost.start <= offset <= lost.end for lost in before.lost_ranges)
        ]
        limit = apply_claims.LINEAGE_CUT_OFFSETS_MAX
        if (
            row.reset_stands
            and row.claim is not None
            and claim.leader_epoch <= row.claim.leader_epoch
        ):
            limit = 0
        confirmed = gone and row.reset_stands and 0 <= row.reset_cut_at <= gone[0]
        assert confirmed or len(gone) <= limit, "suspect"

    # ---- the state after an accepted record

    def check_state(self, record: MetadataRecord, before: PartitionState | None) -> None:
        segments = self.segments
        self.check_life_cycle(record, before, segments)
        self.check_tombstones(record)
        rows = self.world.rows
        assert kept_counts(rows) == recounted(rows), "totals"
        assert coverage_rows(rows) == expected_coverage_rows(rows), "coverage"
        state = self.state
        if state is None:
            return
        self.known = True
        self.note_highest(record, segments)
        assert state.next_offset == self.expected_next_offset(state), "next offset"
        finished = [each for each in segments if each.state is COPY_FINISHED]
        self.check_look_ups(state, finished)
        self.check_lost_ranges(state)
        if before is not None and isinstance(record, PartitionClaim):
            self.check_claim(before, state)
        elif before is not None:
            self.check_no_retreat(before, state)
        self.check_nothing_went(record, state)

    def check_life_cycle(
        self,
        record: MetadataRecord,
        before: PartitionState | None,
        segments: list[RemoteLogSegmentMetadata],
    ) -> None:
        """Of what the record was about, and of the lists."""
        rows, partition = self.world.rows, self.world.partition
        if (
            isinstance(record, RemoteLogSegmentMetadataUpdate)
            and record.segment_id.partition == partition
            and before is not None
        ):
            found = [each.state for each in segments if each.segment_id == record.segment_id]
            assert found == [] if record.state is DELETE_FINISHED else [record.state], "states"
        ids = [each.segment_id.id for each in segments]
        assert len(set(ids)) == len(ids), "a segment is listed once"
        left = {each.segment_id.id for each in queries.left_overs(rows, partition)}
        assert left == {each.segment_id.id for each in segments if each.state is not COPY_FINISHED}
        if self.state is None:
            assert segments == [], "delete_order: a partition went before its segments"
            name = keys.partition_bytes(partition)
            kinds = {key[0] for key, _ in rows.items() if key[1:].startswith(name)}
            assert kinds <= {keys.RowKind.PARTITION_TOMBSTONE}, "a partition that went leaves rows"

    def check_tombstones(self, record: MetadataRecord) -> None:
        """An id that went stays gone, and known, for as long as tombstones are kept."""
        now_ms = read_measured_time(self.world.rows).ms
        if isinstance(record, RemoteLogSegmentMetadataUpdate) and record.state is DELETE_FINISHED:
            self.buried[keys.segment_tombstone_key(record.segment_id.id)] = now_ms
        for key, buried_ms in list(self.buried.items()):
            if now_ms >= buried_ms + apply_purge.TOMBSTONE_KEPT_MS:
                del self.buried[key]
                continue
            assert self.world.rows.get(key) is not None, "tombstones"
            assert self.world.rows.get(keys.segment_key(Uuid(key[1:]))) is None, "tombstones"

    def note_highest(
        self, record: MetadataRecord, segments: list[RemoteLogSegmentMetadata]
    ) -> None:
        for each in segments:
            if each.state is COPY_FINISHED and is_of(each, record):
                for epoch, _, end in parts(each):
                    self.highest[epoch] = max(self.highest.get(epoch, -1), end)

    def expected_next_offset(self, state: PartitionState) -> int:
        ends = [entry.start_offset - 1 for entry in state.lineage[1:]] + [2**62]
        highest = -1
        for index in reversed(range(len(state.lineage))):
            entry = state.lineage[index]
            found = min(self.highest.get(entry.epoch, -1), ends[index])
            if found >= 0 and (index == 0 or found >= entry.start_offset):
                highest = found
                break
        if highest < 0 and state.log_start_offset < 0:
            return -1
        offset = max(highest + 1, state.log_start_offset)
        while any(lost.start <= offset <= lost.end for lost in state.lost_ranges):
            offset += 1
        return offset

    def check_look_ups(
        self, state: PartitionState, finished: list[RemoteLogSegmentMetadata]
    ) -> None:
        """Every offset is served by the best segment, with its own bytes, or rightly by none."""
        best = best_by_offset(finished)
        settled = is_settled(state)
        self.looked_up: dict[int, int] = {}
        end = max((each.end_offset for each in finished), default=0) + 2
        for offset in range(max(end, state.next_offset) + 1):
            epoch = epoch_for_offset(state.lineage, offset)
            if epoch is None and state.lineage:
                epoch = state.lineage[0].epoch  # the head is open downwards
            if epoch is None:
                continue
            answer = queries.segment_for_offset(
                self.world.rows, self.world.partition, epoch, offset
            )
            served = None if answer is None else answer.metadata.segment_id.id
            assert served == best.get((epoch, offset)), "coverage"
            lost = any(each.start <= offset <= each.end for each in state.lost_ranges)
            if answer is None:
                inside = 0 <= state.log_start_offset <= offset < state.next_offset
                assert lost or not (inside and settled), f"no_hole: {offset}"
                continue
            self.looked_up[offset] = epoch
            assert not (lost and settled), f"no_hole: {offset} is served and recorded as lost"
            self.check_bytes(state, answer, offset)

    def check_bytes(
        self, state: PartitionState, answer: queries.SegmentAnswer, offset: int
    ) -> None:
        """What is read from `offset` to where the answer ends is what the lineage has there."""
        assert answer.metadata.state is COPY_FINISHED, "no_bad_byte: not finished"
        held = self.contents[number_of(answer.metadata)]
        for each in (offset, answer.valid_until):
            epoch = epoch_for_offset(state.lineage, each)
            if epoch is not None:
                assert held[each] == epoch, f"no_bad_byte: {each}"

    def check_lost_ranges(self, state: PartitionState) -> None:
        end = -1
        for lost in state.lost_ranges:
            assert end < lost.start <= lost.end, "lost ranges are disjoint and ascend"
            end = lost.end
        assert not is_settled(state) or end < max(state.next_offset, 0), "no_hole: lost above next"

    def check_no_retreat(self, before: PartitionState, state: PartitionState) -> None:
        name = "offsets_never_retreat"
        assert state.log_start_offset >= before.log_start_offset, name
        assert (state.highest_copied or (-1, -1))[0] >= (before.highest_copied or (-1, -1))[0], name
        assert state.lineage == before.lineage, name

    def check_claim(self, before: PartitionState, state: PartitionState) -> None:
        """Log start goes back to where the new tail begins, and nowhere else."""
        if not before.lineage:
            return
        if state.log_start_offset < 0 <= before.log_start_offset:
            assert state.local_log_start_offset < before.log_start_offset, "offsets_never_retreat"
            assert before.highest_copied is state.highest_copied is None, "offsets_never_retreat"
            assert not state.lost_ranges, "no_hole: lost above next"
            return
        first, last = before.lineage[0].start_offset, before.lineage[-1].epoch
        starts = sorted({entry.start_offset for entry in (*before.lineage, *state.lineage)})
        cuts = []
        for start in starts:
            old = epoch_for_offset(before.lineage, start)
            new = epoch_for_offset(state.lineage, start)
            if (start >= first and old != new) or (new is not None and new > last):
                cuts.append(start)
        name = "offsets_never_retreat"
        if cuts:
            assert state.log_start_offset <= max(cuts[0], state.next_offset), name
            if before.log_start_offset > cuts[0]:
                assert state.log_start_offset <= cuts[0], "no_hole: written since, never copied"
        else:
            assert state.next_offset >= before.next_offset, name
        floor = min([before.log_start_offset, *cuts])
        assert state.log_start_offset >= floor, name

    def check_nothing_went(
        self,
        record: MetadataRecord,
        state: PartitionState,
    ) -> None:
        """What was served and still is in the lineage and retained goes on being served."""
        free = state.mode is Mode.DELEGATED or state.delete_state is DELETE_PARTITION_STARTED
        if isinstance(record, SegmentMissing):
            free = True  # what serves no more is lost or below log start: see the look-ups
        for offset, epoch in self.served.items():
            if free or offset < state.log_start_offset:
                continue
            if epoch_for_offset(state.lineage, offset) == epoch:
                assert offset in self.looked_up, f"no_hole: {offset} was served"
        self.served = self.looked_up

    # ---- at any time

    def check_objects(self) -> None:
        if self.is_held_back():
            return  # a row of the snapshot may have lost its objects since
        for each in self.segments:
            if each.state is COPY_FINISHED:
                assert number_of(each) in self.objects, "finished_is_readable"

    def check_replay(self) -> None:
        self.shadow.check_replay()


def is_of(segment: RemoteLogSegmentMetadata, record: MetadataRecord) -> bool:
    return (
        isinstance(record, RemoteLogSegmentMetadataUpdate)
        and segment.segment_id == record.segment_id
    )


def deletes(record: MetadataRecord) -> bool:
    """A record after which objects may go."""
    if isinstance(record, RemotePartitionDeleteMetadata):
        return record.state is not PartitionDeleteState.DELETE_PARTITION_MARKED
    return isinstance(record, RemoteLogSegmentMetadataUpdate) and record.state in (
        SegmentState.DELETE_SEGMENT_STARTED,
        DELETE_FINISHED,
    )


def is_settled(state: PartitionState) -> bool:
    """In sidecar mode, claimed since, and not being deleted: there are no holes."""
    if state.mode is not Mode.SIDECAR or state.delete_state is DELETE_PARTITION_STARTED:
        return False
    claim = state.claim or state.voided_claim
    return claim is not None and claim.token >= state.mode_offset

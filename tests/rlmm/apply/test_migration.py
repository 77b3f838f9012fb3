"""The phases of the move from Kafka's own metadata topic, and what they hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_formats.errors import CorruptData
from rlmm.apply.outcome import Verdict
from rlmm.migration_phase import FROZEN_PHASES, NEXT_PHASES, NO_MIGRATION, Migration, MigrationPhase
from rlmm.partition_state import Mode
from rlmm.records.control_records import MigrationAcknowledged, PartitionModeChange
from rlmm.records.records import MetadataRecord
from rlmm.rows.migration import (
    acknowledged,
    acknowledged_from,
    decode_migration,
    encode_migration,
    find_migration,
)
from rlmm.rows.restart_rows import restarted
from rlmm.rows.rows import MemoryRows
from rlmm.rows.snapshot_rows import from_proposals, to_proposals
from rlmm.segment import PartitionDeleteState, SegmentState
from tests.rlmm.apply.migration_world import CLUSTER_ID, MigrationWorld
from tests.rlmm.state_world import PAYMENTS, START_MS, World

NONE, KAFKA, SWITCHING, QUORUM, DONE, BACK = MigrationPhase
WAYS: dict[MigrationPhase, tuple[MigrationPhase, ...]] = {
    NONE: (),
    KAFKA: (KAFKA,),
    SWITCHING: (KAFKA, SWITCHING),
    QUORUM: (KAFKA, SWITCHING, QUORUM),
    DONE: (KAFKA, SWITCHING, QUORUM, DONE),
    BACK: (KAFKA, SWITCHING, QUORUM, BACK),
}


@pytest.fixture
def world() -> MigrationWorld:
    return MigrationWorld()


def test_below_level_2_nothing_moves() -> None:
    world = World()
    record = MigrationWorld.a_phase(MigrationWorld(), KAFKA)
    assert not world.changed_by(record)
    assert world.verdict(record) is Verdict.CONFLICT
    assert "quorum finalize 2" in world.put(record).message
    assert find_migration(world.rows) == NO_MIGRATION


@pytest.mark.parametrize("before", MigrationPhase)
@pytest.mark.parametrize("after", WAYS)
def test_phases_follow_each_other_along_the_arrows_alone(
    before: MigrationPhase, after: MigrationPhase
) -> None:
    world = MigrationWorld()
    world.phases(*WAYS[before])
    if after is NONE:
        return
    record = world.a_phase(after)
    if after in NEXT_PHASES[before]:
        world.accept(record)
        known = world.migration
        assert (known.phase, known.since, known.since_ms) == (after, world.offset, START_MS)
        assert (known.kafka_cluster_id, known.who, known.why) == (CLUSTER_ID, "ann", "the move")
    else:
        assert not world.changed_by(record)
        assert world.verdict(record) is Verdict.CONFLICT


def test_a_change_names_the_phase_that_it_replaces(world: MigrationWorld) -> None:
    first = world.a_phase(KAFKA)
    world.accept(first)
    assert world.verdict(first) is Verdict.CONFLICT, "whose switch would it be"
    stale = replace(world.a_phase(SWITCHING), replaces_offset=-1)
    assert world.verdict(stale) is Verdict.CONFLICT
    other = replace(world.a_phase(SWITCHING), kafka_cluster_id="another")
    assert world.verdict(other) is Verdict.CONFLICT
    world.phases(SWITCHING)


@pytest.mark.parametrize(
    "wrong", [{"kafka_cluster_id": ""}, {"kafka_cluster_id": "a\nb"}, {"who": "a" * 201},
              {"kafka_cluster_id": "k" * 201}]
)  # fmt: skip
def test_a_phase_has_a_cluster_and_short_texts(
    world: MigrationWorld, wrong: dict[str, str]
) -> None:
    record = replace(world.a_phase(KAFKA), **wrong)  # type: ignore[arg-type]
    assert world.verdict(record) is Verdict.INVALID


def test_a_move_begins_before_the_first_delegated_partition(world: MigrationWorld) -> None:
    world.leads((4, 0))
    world.partition = PAYMENTS
    world.claim((4, 0), mode=Mode.DELEGATED)
    assert world.verdict(world.a_phase(KAFKA)) is Verdict.CONFLICT
    world.mode(Mode.PAUSED)
    world.phases(KAFKA)


@pytest.mark.parametrize("phase", [KAFKA, SWITCHING, BACK])
def test_while_the_truth_is_elsewhere_nothing_of_delegated_partitions_changes(
    world: MigrationWorld, phase: MigrationPhase
) -> None:
    world.phases(KAFKA, SWITCHING, QUORUM)
    world.claim((4, 0), mode=Mode.DELEGATED)
    world.copy(1, 0, 99, [(4, 0)])
    world.copy(2, 100, 199, [(4, 100)])
    world.accept(world.a_delete(2), world.an_add(3, 200, 299, [(4, 200)]))
    world.phases(BACK)
    if phase is not BACK:
        world.phases(KAFKA)
    if phase is SWITCHING:
        world.phases(SWITCHING)
    held: list[MetadataRecord] = [
        world.a_claim([(4, 0), (5, 300)], mode=Mode.DELEGATED),
        world.an_add(4, 200, 299, [(4, 200)]),
        world.a_finish(3),
        world.a_delete(1),
        world.a_delete(3, SegmentState.COPY_SEGMENT_STARTED),
        world.a_delete_finish(2),
        world.a_log_start(100, 4),
        world.a_step(PartitionDeleteState.DELETE_PARTITION_MARKED),
        PartitionModeChange(world.partition, Mode.SIDECAR, world.state.mode_offset),
    ]
    for record in held:
        assert not world.changed_by(record), record
        assert world.verdict(record) is Verdict.CONFLICT, record
        assert phase.name in world.put(record).message
    world.partition = PAYMENTS
    assert world.verdict(world.a_claim([(1, 0)], mode=Mode.DELEGATED)) is Verdict.CONFLICT
    change = PartitionModeChange(PAYMENTS, Mode.DELEGATED, -1)
    assert world.verdict(change) is Verdict.CONFLICT
    world.leads((1, 0))
    world.copy(9, 0, 99, [(1, 0)])
    world.accept(world.a_log_start(50, 1))


@pytest.mark.parametrize("phase", [QUORUM, DONE])
def test_with_the_truth_in_the_metadata_log_all_goes_on(
    world: MigrationWorld, phase: MigrationPhase
) -> None:
    world.phases(*WAYS[phase])
    world.claim((4, 0), mode=Mode.DELEGATED)
    world.copy(1, 0, 99, [(4, 0)])
    world.accept(world.a_delete(1), world.a_delete_finish(1))
    change = PartitionModeChange(world.partition, Mode.PAUSED, world.state.mode_offset)
    assert (world.verdict(change) is Verdict.ACCEPTED) == (phase is DONE)


def test_the_phase_is_in_snapshots_and_outlives_a_restart(world: MigrationWorld) -> None:
    world.phases(KAFKA, SWITCHING)
    again = MemoryRows(from_proposals(to_proposals(world.rows.items())))
    assert find_migration(again) == world.migration
    begun = MemoryRows(restarted(again.items(), end_offset=100))
    assert find_migration(begun) == world.migration


def test_a_migration_row_that_no_program_wrote_is_corrupt_data() -> None:
    row = encode_migration(Migration(QUORUM, 7, CLUSTER_ID, "ann", "", 5))
    assert decode_migration(row) == Migration(QUORUM, 7, CLUSTER_ID, "ann", "", 5)
    for wrong in (b"", row[:-1], row + b"\0", b"\0\1" + row[2:], b"\0\0\5" + row[3:],
                  row[:-1] + b"\1\0\0", encode_migration(NO_MIGRATION)):  # fmt: skip
        with pytest.raises(CorruptData):
            decode_migration(wrong)


@pytest.mark.parametrize("phase", WAYS)
def test_brokers_acknowledge_the_frozen_phase_that_stands(phase: MigrationPhase) -> None:
    world = MigrationWorld()
    world.phases(*WAYS[phase])
    since = world.migration.since
    if phase not in FROZEN_PHASES:
        assert world.verdict(MigrationAcknowledged(3, since)) is Verdict.CONFLICT
        return
    world.accept(MigrationAcknowledged(3, since))
    assert world.verdict(MigrationAcknowledged(3, since)) is Verdict.NO_EFFECT
    assert world.verdict(MigrationAcknowledged(4, since - 1)) is Verdict.CONFLICT
    assert world.verdict(MigrationAcknowledged(-1, since)) is Verdict.INVALID
    world.accept(MigrationAcknowledged(7, since))
    assert acknowledged(world.rows, since) == {3, 7}
    world.phases(KAFKA)
    assert acknowledged(world.rows, world.migration.since) == set()
    world.phases(SWITCHING)
    again = world.migration.since
    world.accept(MigrationAcknowledged(7, again))
    assert acknowledged(world.rows, since) == {3}
    assert acknowledged_from(world.rows, since) == {3, 7}
    assert acknowledged_from(world.rows, again) == {7}


def test_below_level_2_nobody_acknowledges() -> None:
    assert World().verdict(MigrationAcknowledged(3, -1)) is Verdict.CONFLICT

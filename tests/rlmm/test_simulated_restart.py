"""The simulated partition loses its metadata: a new cluster goes on from an older snapshot.

Brokers and objects are what they were at the disaster. All invariants are checked after every
event, and one more: nothing is deleted until the reconciliation is recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kafka_formats.kafka_uuid import Uuid
from rlmm.apply import restart as apply_restart
from rlmm.apply import segments as apply_segments
from rlmm.apply.outcome import Verdict
from rlmm.partition_state import PartitionState
from rlmm.records.control_records import PartitionAdopted, Reconciled, SegmentMissing
from rlmm.records.records import MetadataRecord
from rlmm.rows import reads as row_reads
from rlmm.rows.reads import read_restart
from rlmm.rows.restart_rows import restarted
from rlmm.rows.rows import MemoryRows
from rlmm.segment import Incarnation, RemoteLogSegmentMetadata
from tests.rlmm.recomputed_state import all_segments, number_of
from tests.rlmm.simulated_nodes import COPY_FINISHED, COPY_STARTED, Node, Simulation
from tests.rlmm.simulation_runs import seed_named, set_small_limits

STEPS_BEFORE = 120
STEPS_PENDING = 60
STEPS_AFTER = 80
SEEDS = range(500, 510)
SEEDS_MAX = 30
LATE_SEEDS = {"nothing is held back": 506, "adopted from the start": 515}
"""The seed that found a bug when it was last looked for is tried first: seconds less."""


class RestartedSimulation(Simulation):
    """`manifests`: what an add said, which the store knows as long as it has the objects."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.manifests: dict[int, RemoteLogSegmentMetadata] = {}
        self.disasters = 0
        self.given_up = 0

    def run_through(self) -> None:
        self.run(STEPS_BEFORE)
        snapshot, end_offset = self.world.rows.items(), self.world.offset + 1
        self.run(self.random.choice((0, 5, 20, 150)))
        self.disaster(snapshot, end_offset)
        self.run(self.random.choice((0, STEPS_PENDING)))
        self.reconcile()
        self.run(STEPS_AFTER)

    def disaster(self, snapshot: list[tuple[bytes, bytes]], end_offset: int) -> None:
        self.disasters += 1
        self.world.rows = MemoryRows(list(restarted(iter(snapshot), end_offset=end_offset)))
        self.world.offset = end_offset - 1
        self.world.records = []
        self.late, self.sent = [], []
        for number in sorted(self.objects):
            if self.chance(0.1):
                self.objects.discard(number)  # more than the metadata was lost
        for node in self.nodes:
            directory = Uuid(bytes((100 + self.disasters, node.incarnation.node_id)) * 8)
            node.incarnation = Incarnation(node.incarnation.node_id, directory, 1)
            node.token, node.claims = -1, 0
            self.refresh(node)
        self.auditor.restarted(self.random)

    def reconcile(self) -> None:
        """An admin lists the store and says what is missing."""
        restart = read_restart(self.world.rows)
        assert restart is not None
        for row in sorted(all_segments(self.world.rows), key=lambda row: row.start_offset):
            gone = row.state is COPY_FINISHED and number_of(row) not in self.objects
            if gone and row.finished_at < restart.offset:
                self.given_up += 1
                id_ = row.segment_id
                record = SegmentMissing(id_.partition, id_.id, row.finished_at)
                assert self.commit(record) is Verdict.ACCEPTED
        assert self.commit(Reconciled(restart.offset)) is Verdict.ACCEPTED
        self.auditor.check_objects()

    def send(self, record: MetadataRecord) -> Verdict | None:
        if isinstance(record, RemoteLogSegmentMetadata):
            self.manifests[number_of(record)] = record
        return super().send(record)

    def add(self) -> None:
        node = self.writer()
        state = self.state_for(node)
        if state is not None and state.adopting:
            self.adopt(node, state)
        else:
            super().add()

    def adopt(self, node: Node, state: PartitionState) -> None:
        """List, add and finish what is whole, then say so."""
        if state.claim is None or state.claim.token != node.token:
            return
        self.world.token, self.world.node = node.token, node.incarnation
        whole = [self.manifests[number] for number in self.objects if number in self.manifests]
        for row in sorted(whole, key=lambda row: row.start_offset):
            if row.segment_id.partition != self.world.partition:
                continue
            known = row_reads.read_segment(node.view, row.segment_id.id)
            if known is None:
                self.send(replace(row, token=node.token, writer=node.incarnation))
            if known is None or known.state is COPY_STARTED:
                self.send(self.world.a_finish(number_of(row)))
        self.send(PartitionAdopted(self.world.partition, node.token))
        self.refresh(node)

    # ---- who deletes objects looks whether that is allowed

    def collect(self) -> None:
        if not self.auditor.is_held_back():
            super().collect()

    def finish_delete(self) -> None:
        if not self.auditor.is_held_back():
            super().finish_delete()

    def go_on_deleting(self, state: PartitionState) -> None:
        if not self.auditor.is_held_back():
            super().go_on_deleting(state)


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    set_small_limits(monkeypatch)


def test_the_invariants_hold_through_a_restart_from_a_snapshot() -> None:
    seen: set[str] = set()
    given_up = 0
    for seed in SEEDS:
        simulation = RestartedSimulation(seed)
        with seed_named(seed):
            simulation.run_through()
        seen |= simulation.seen
        given_up += simulation.given_up
    assert given_up > 0
    assert {"PartitionAdopted ACCEPTED", "SegmentMissing ACCEPTED", "Reconciled ACCEPTED"} <= seen


def nothing_is_held_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(apply_segments, "deletes_held_back", lambda _draft: None)


def missing_is_not_recorded_as_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(apply_restart, "_lose", lambda *_args: None)


def adopted_from_the_start(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(apply_segments, "is_adopting", lambda *_args: False)


def others_copies_are_finished_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(apply_segments, "is_adopting", lambda *_args: True)


PLANTED: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "nothing is held back": nothing_is_held_back,
    "missing is not recorded as lost": missing_is_not_recorded_as_lost,
    "adopted from the start": adopted_from_the_start,
    "others' copies are finished for ever": others_copies_are_finished_for_ever,
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTED[name](monkeypatch)
    seeds = range(SEEDS.start, SEEDS.start + SEEDS_MAX)
    for seed in dict.fromkeys((LATE_SEEDS.get(name, SEEDS.start), *seeds)):
        try:
            RestartedSimulation(seed).run_through()
        except AssertionError:
            return
    pytest.fail(f"not found within {SEEDS_MAX} seeds")

"""What is forecast of a claim is what the claim then does, on whatever state nodes can make."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_formats.kafka_uuid import Uuid
from rlmm.apply import claims as apply_claims
from rlmm.apply.claim_forecast import AskedClaim, ClaimForecast, forecast_claim
from rlmm.apply.outcome import Verdict
from rlmm.partition_state import PartitionState
from rlmm.records.control_records import NodeRegistration, PartitionClaim
from rlmm.records.records import MetadataRecord
from rlmm.rows import queries
from rlmm.segment import OFFSET_MAX, Incarnation
from tests.rlmm.simulated_nodes import Simulation
from tests.rlmm.state_world import NODE_1, NODE_2, ORDERS, World, epochs

SEEDS = (*range(33, 38), 41, 42, *range(60, 66))
STEPS = 250


def asked(claim: PartitionClaim) -> AskedClaim:
    return AskedClaim(
        claim.partition, claim.leader_epoch, claim.leader_epochs, claim.local_log_start_offset
    )


def comparable(state: PartitionState) -> PartitionState:
    """Without what depends on who claims, and at which metadata offset."""
    return replace(state, claim=None, voided_claim=None, mode_offset=-1)


class ForecastBeforeClaim(Simulation):
    """Asks before every claim, and compares."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.held: list[PartitionState] = []
        self.refused: set[Verdict] = set()
        self.settled = 0

    def commit(self, record: MetadataRecord) -> Verdict:
        if not isinstance(record, PartitionClaim):
            return super().commit(record)
        before = self.world.rows.items()
        state = queries.partition_state(self.world.rows, record.partition)
        forecast = forecast_claim(self.world.rows, asked(record))
        assert self.world.rows.items() == before, "a forecast writes nothing"
        verdict = super().commit(record)
        self.compare(state, forecast, verdict)
        return verdict

    def compare(
        self, state: PartitionState | None, forecast: ClaimForecast, verdict: Verdict
    ) -> None:
        after = queries.partition_state(self.world.rows, self.world.partition)
        if verdict is Verdict.ACCEPTED:
            assert forecast.state is not None
            assert after is not None
            assert comparable(forecast.state) == comparable(after)
            self.held.append(after)
            if state is not None and state.log_start_offset < after.log_start_offset:
                self.settled += 1
        elif forecast.state is None:
            # Who makes it, and in which mode, may be wrong too; the forecast is for whoever may.
            assert verdict is not Verdict.NO_EFFECT
            if forecast.outcome.verdict is verdict:
                self.refused.add(verdict)


def test_the_forecast_is_what_the_claim_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply_claims, "LINEAGE_CUT_OFFSETS_MAX", 15)
    held: list[PartitionState] = []
    refused: set[Verdict] = set()
    settled = 0
    for seed in SEEDS:
        simulation = ForecastBeforeClaim(seed)
        simulation.run(STEPS)
        held += simulation.held
        refused |= simulation.refused
        settled += simulation.settled
    assert len(held) > 100
    assert any(state.lost_ranges for state in held)
    assert settled, "log start followed the broker after a mode change"
    assert {Verdict.FENCED, Verdict.SUSPECT} <= refused


def test_a_head_that_is_proven_by_what_is_served_is_forecast_too() -> None:
    world = World()
    world.leads((1, 300))
    world.accept(world.a_claim([(1, 300), (2, 400)]))
    claim = world.a_claim([(0, 0), (1, 300), (2, 400), (3, 500)])
    forecast = forecast_claim(world.rows, asked(claim))
    assert world.verdict(claim) is forecast.outcome.verdict is Verdict.ACCEPTED
    assert forecast.state is not None
    assert comparable(forecast.state) == comparable(world.state)
    assert world.state.lineage == epochs((0, 0), (1, 300), (2, 400), (3, 500))


@pytest.mark.parametrize("epoch", [-1, 2**31])
@pytest.mark.parametrize("start", [-2, OFFSET_MAX])
def test_no_question_makes_it_raise(epoch: int, start: int) -> None:
    for checkpoint in ((), epochs((0, 5), (0, 3)), epochs((epoch, OFFSET_MAX))):
        forecast_claim(World().rows, AskedClaim(ORDERS, epoch, checkpoint, start))


NODE_0 = Incarnation(0, Uuid(b"directory-of-n-0"), 1)
WIPED = Incarnation(1, Uuid(b"directory-of-m-1"), 1)


@pytest.mark.parametrize(("claimant", "epoch"), [(NODE_2, 4), (WIPED, 3)])
def test_whoever_asks_is_no_process_that_lost_its_node_id(
    claimant: Incarnation, epoch: int
) -> None:
    """Node 0 has nothing to do with it; node 1 claims, and is formatted anew."""
    world = World()
    world.accept(*map(NodeRegistration, (NODE_0, NODE_1, NODE_2)))
    for claim in (world.a_claim([(3, 0)]), world.a_claim([(epoch, 0)], node=claimant)):
        forecast = forecast_claim(world.rows, asked(claim))
        assert (forecast.outcome.verdict, world.verdict(claim)) == (Verdict.ACCEPTED,) * 2
        world.put(NodeRegistration(WIPED))

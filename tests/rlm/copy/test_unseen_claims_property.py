"""Claims made before another leader's claim is seen, against histories whose truth is known."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafka_formats.errors import InvalidRequest
from rlm.copy.tiered_head import tiered_head, with_recorded_start
from rlm.reconcile.lost_claims import with_lost_claims
from rlmm.lineage import merge
from tests.rlm.copy.test_held_heads_property import (
    REPLICAS,
    STEPS,
    History,
    Step,
    alone,
    epochs_within,
)

_CUT = st.integers(0, 8)
_REPLICA = st.integers(0, REPLICAS - 1)
CUT = [alone(0, 2, follow=7), alone(0, 3, cut=6, copied=[(2, 2)])]
"""Epoch 1 is copied from 2 on; who leads it next has its disk from 4 on."""


@settings(max_examples=200, deadline=None)
@given(STEPS, _REPLICA, _REPLICA, _CUT, _CUT)
@example(CUT, 0, 1, 1, 2)
def test_a_claim_unseen_takes_no_tiered_offset_of_the_first_epoch_on_the_disk(
    steps: list[Step], leader: int, other: int, cut: int, others_cut: int
) -> None:
    """`other` is elected unclean and claims, `leader` comes back and claims what it knew before."""
    history = History()
    history.play(steps)
    known, epoch = history.lineage, len(steps)
    others = [*history.logs[other], epoch]
    log = [*history.logs[leader], epoch + 1]
    own = epochs_within(log, max(len(log) - 1 - cut, 0), len(log))
    told = with_recorded_start(own, known)
    told = with_lost_claims(told, tiered_head(told, (), history.listed))
    unseen = epochs_within(others, max(len(others) - 1 - others_cut, 0), len(others))
    try:
        between = merge(known, unseen, leader_epoch=epoch, higher_epoch=True).epochs
    except InvalidRequest:
        return
    merged = merge(between, told, leader_epoch=epoch + 1, higher_epoch=True).epochs
    right = {(at, of) for at, of in enumerate(log) if of >= own[0].epoch}
    assert history.served(known) & right <= history.served(merged)

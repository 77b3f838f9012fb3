"""Leader epochs asked of a broker: what Kafka's arithmetic tells is the checkpoint itself."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from kafka_formats.leader_epoch_checkpoint import EpochEntry, Epochs, truncate_from_start
from rlm.leadership.leadership import Leads, LocalLogStart, NoAnswer
from rlm.leadership.unseen_disk import (
    EpochAt,
    EpochWalk,
    ReportedReplica,
    ReportedReplicas,
    ask_epochs,
)
from tests.rlm.planner_facts import PARTITION as TIP
from tests.rlm.telling_broker import TellingBroker

NAME = (TIP.topic, TIP.partition)


@st.composite
def checkpoints(draw: st.DrawFn) -> Epochs:
    count = draw(st.integers(1, 12))
    epochs = sorted(draw(st.sets(st.integers(0, 40), min_size=count, max_size=count)))
    starts = sorted(draw(st.sets(st.integers(0, 500), min_size=count, max_size=count)))
    return tuple(map(EpochEntry, epochs, starts))


@given(checkpoints(), st.integers(0, 600))
def test_the_epochs_asked_for_are_those_of_the_checkpoint(whole: Epochs, log_start: int) -> None:
    kept = truncate_from_start(whole, max(log_start, whole[0].start_offset))
    broker = TellingBroker({NAME: Leads(kept[-1].epoch, 700)}, epochs=kept, end_offset=700)
    first = EpochAt(kept[0].epoch, kept[0].start_offset)
    found = asyncio.run(ask_epochs(broker, {NAME: kept[-1].epoch}, {NAME: first}))
    assert found == {NAME: kept}


def test_answers_that_fit_no_log_are_not_believed() -> None:
    for answer in (EpochAt(5, 60), EpochAt(0, 60), EpochAt(3, 10), EpochAt(3, 9)):
        assert EpochWalk(5, 1, 10).hear(answer) is not None
    walk = EpochWalk(5, 1, 10)
    assert walk.hear(EpochAt(3, 60)) is None
    assert walk.hear(EpochAt(2, 60)) is not None


def test_epochs_are_asked_once_a_leadership_and_follow_the_log_start() -> None:
    epochs = (EpochEntry(0, 0), EpochEntry(2, 10), EpochEntry(3, 20))
    broker = TellingBroker({NAME: Leads(3, 25)}, epochs=epochs)
    broker.local_start = LocalLogStart(20, 3)

    async def main() -> None:
        told = ReportedReplicas(broker)
        assert await told.ask({TIP: Leads(3, 25)}) == {TIP: ReportedReplica(epochs, 0, 20)}
        asked = len(broker.asked)
        assert await told.ask({TIP: Leads(3, 25)}) == {TIP: ReportedReplica(epochs, 0, 20)}
        assert len(broker.asked) == asked
        broker.epochs = truncate_from_start(epochs, 12)
        moved = {TIP: ReportedReplica(broker.epochs, 12, 20)}
        assert await told.ask({TIP: Leads(3, 25)}) == moved
        assert len(broker.asked) == asked
        answer = (await told.ask({TIP: Leads(4, 25)}))[TIP]
        assert isinstance(answer, NoAnswer)

    asyncio.run(main())

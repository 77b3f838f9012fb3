"""Proposals on their way to a leader that changes, and to one whose answer cannot be read."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import pytest

from kafka_formats.errors import OutcomeUnknown, RetryLater
from rlmm.log.log_limits import LogLimits
from rlmm.metadata_log import Proposal
from rlmm.quorum.driver import QuorumDriver
from rlmm.quorum.network_ports import ProduceAnswer
from rlmm.quorum.own_proposals import (
    FORWARD_DEADLINE_MIN_MS,
    PRODUCE_DEADLINE_MS,
    Proposals,
)
from rlmm.quorum.proposal_queue import ProposalQueue
from rlmm.raft.actions import Role
from rlmm.raft.events import CommitLearned, Event
from rlmm.raft.messages import Error, PeerRequest, PeerResponse
from rlmm.rows.feature_level import FeatureLevels

DEADLINE_S = 10.0
LIMITS = LogLimits()


@dataclass
class Core:
    """What a follower's core says of its leader."""

    role: Role = Role.FOLLOWER
    leader_id: int = 2
    epoch: int = 1


@dataclass
class Driver:
    core: Core = field(default_factory=Core)
    fed: list[Event] = field(default_factory=list)

    def feed(self, event: Event) -> None:
        self.fed.append(event)


class Leaders:
    """`Peers` that note who was asked, and for how long, and answer with offset 7 or `error`."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.deadlines_ms: list[int] = []
        self.error: Exception | None = None

    def set_addresses(self, addresses: Mapping[int, tuple[str, int]]) -> None:
        raise NotImplementedError

    async def ask(self, node_id: int, request: PeerRequest, *, deadline_ms: int) -> PeerResponse:
        raise NotImplementedError

    async def produce(
        self,
        node_id: int,
        records: bytes,
        *,
        deadline_ms: int,
    ) -> ProduceAnswer:
        self.asked.append(node_id)
        self.deadlines_ms.append(deadline_ms)
        if self.error is not None:
            raise self.error
        return ProduceAnswer(Error.NONE, 7, leader_epoch=2)

    async def feature_levels(self, node_id: int, *, deadline_ms: int) -> FeatureLevels:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError


def follower(leaders: Leaders, limits: LogLimits = LIMITS) -> tuple[Driver, Proposals]:
    driver = Driver()
    proposals = Proposals(
        cast(QuorumDriver, driver),
        leaders,
        ProposalQueue(limits),
        now_ms=lambda: 7_000,
        monotonic=asyncio.get_running_loop().time,
        sleep=asyncio.sleep,
        retry_backoff_s=0.001,
    )
    return driver, proposals


async def test_what_had_not_left_when_the_leader_changed_goes_to_the_new_one() -> None:
    leaders = Leaders()
    driver, proposals = follower(leaders)
    proposing = asyncio.ensure_future(
        proposals.propose((Proposal(None, b"a"),), deadline_s=DEADLINE_S)
    )
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    # It is taken for the old leader now, and the task that sends it has not had its first turn.
    driver.core.leader_id, driver.core.epoch = 3, 2
    proposals.role_changed()
    assert await proposing == 7
    assert leaders.asked == [3]


async def test_those_who_gave_up_take_no_room_while_there_is_no_leader() -> None:
    driver, proposals = follower(Leaders(), LogLimits(queue_bytes_max=30))
    driver.core.leader_id = -1
    cancelled = asyncio.ensure_future(
        proposals.propose((Proposal(None, b"0123456789"),), deadline_s=DEADLINE_S)
    )
    await asyncio.sleep(0)
    cancelled.cancel()
    for _ in range(10):
        with pytest.raises(RetryLater, match="no leader"):
            await proposals.propose((Proposal(None, b"0123456789"),), deadline_s=0.001)
    lives = asyncio.ensure_future(
        proposals.propose((Proposal(None, b"0123456789" * 3),), deadline_s=DEADLINE_S)
    )
    await asyncio.sleep(0)
    driver.core.leader_id = 2
    proposals.role_changed()
    assert await lives == 7


async def test_who_gave_up_on_the_way_does_not_come_back_into_the_queue() -> None:
    queue = ProposalQueue(LogLimits())
    waiting = queue.add((Proposal(None, b"a"),), end_s=1)
    group = queue.take()
    queue.give_up(waiting, 1)
    queue.leave(waiting)
    queue.put_back(group)
    assert not queue
    with pytest.raises(OutcomeUnknown):
        await waiting.done


async def test_the_core_is_told_of_the_commit_of_what_was_handed_on() -> None:
    driver, proposals = follower(Leaders())
    proposed = (Proposal(None, b"a"), Proposal(None, b"b"))
    assert await proposals.propose(proposed, deadline_s=DEADLINE_S) == 7
    assert driver.fed == [CommitLearned(2, 9)]


async def test_an_answer_that_breaks_us_leaves_nobody_waiting() -> None:
    leaders = Leaders()
    leaders.error = ValueError("not what was expected")
    _, proposals = follower(leaders)
    with pytest.raises(OutcomeUnknown, match="not what was expected"):
        await proposals.propose((Proposal(None, b"a"),), deadline_s=DEADLINE_S)
    leaders.error = None
    assert await proposals.propose((Proposal(None, b"b"),), deadline_s=DEADLINE_S) == 7


async def test_an_answer_is_waited_for_as_long_as_one_of_the_proposers_waits() -> None:
    leaders = Leaders()
    _, proposals = follower(leaders)
    deadlines_s = ((5.0, 20.0, 10.0), (90.0,), (0.2,))
    for together in deadlines_s:
        await asyncio.gather(
            *(proposals.propose((Proposal(None, b"a"),), deadline_s=each) for each in together)
        )
    longest, most, least = leaders.deadlines_ms
    assert 10_000 < longest <= 20_000
    assert most == PRODUCE_DEADLINE_MS
    assert least == FORWARD_DEADLINE_MIN_MS

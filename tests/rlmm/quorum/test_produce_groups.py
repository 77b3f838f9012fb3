"""Produce requests of one turn of the event loop: proposed together, answered each for itself."""

from __future__ import annotations

import asyncio

import pytest

from rlmm.log.committed import encode_proposals
from rlmm.metadata_log import Proposal
from rlmm.quorum import server
from rlmm.quorum.network_ports import ProduceAnswer
from rlmm.raft.events import Event, Propose
from rlmm.raft.messages import Error
from tests.rlmm.quorum.following import collect
from tests.rlmm.quorum.local_network import Network, Replica, leader_of, voters_of


def records(*values: bytes) -> bytes:
    proposals = tuple(Proposal(None, value) for value in values)
    batches = encode_proposals(proposals, base_offset=0, epoch=0, timestamp_ms=1)
    return b"".join(batch.data for batch in batches)


async def sole_voter() -> tuple[Replica, list[int]]:
    """And the number of batches in each of the proposals that its core was handed."""
    replica = Replica(Network(), 1, voters_of(1))
    await replica.start()
    await leader_of([replica])
    proposed: list[int] = []
    feed = replica.log.driver.feed

    def watched(event: Event) -> None:
        if isinstance(event, Propose):
            proposed.append(len(event.batches))
        feed(event)

    replica.log.driver.feed = watched  # type: ignore[method-assign]  # to watch what comes
    return replica, proposed


async def produced(replica: Replica, *requests: bytes) -> list[ProduceAnswer]:
    door = server.DriverServer(replica.log, now_ms=lambda: 7_000)
    return await asyncio.gather(*(door.produce(each) for each in requests))


async def test_requests_of_one_turn_are_one_proposal_with_an_offset_each() -> None:
    replica, proposed = await sole_voter()
    answers = await produced(replica, records(b"a"), records(b"b", b"c"), records(b"d"))
    assert proposed == [3]
    assert {answer.error for answer in answers} == {Error.NONE}
    by_offset = {each.offset: each.value for each in await collect(replica, answers[2].base_offset)}
    assert [by_offset.get(answer.base_offset) for answer in answers[:2]] == [b"a", b"b"]
    assert answers[2].base_offset == answers[0].base_offset + 3
    await replica.stop()


async def test_a_damaged_request_is_refused_alone() -> None:
    replica, proposed = await sole_voter()
    bad = bytearray(records(b"bad"))
    bad[-1] ^= 1
    good, refused, also_good = await produced(replica, records(b"a"), bytes(bad), records(b"b"))
    assert proposed == [2]
    assert refused.error is Error.INVALID_REQUEST
    assert also_good.base_offset == good.base_offset + 1
    await replica.stop()


async def test_what_is_too_large_for_a_group_goes_alone_and_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "GROUP_BYTES_MAX", 2 * len(records(b"a")))
    replica, proposed = await sole_voter()
    requests = [records(b"a"), records(b"b"), records(b"c" * 500), records(b"d")]
    answers = await produced(replica, *requests)
    assert proposed == [2, 1, 1]
    assert [answer.base_offset - answers[0].base_offset for answer in answers] == [0, 1, 2, 3]
    await replica.stop()


async def test_a_caller_that_gave_up_changes_nothing_for_the_others() -> None:
    replica, _ = await sole_voter()
    door = server.DriverServer(replica.log, now_ms=lambda: 7_000)
    leaving = asyncio.ensure_future(door.produce(records(b"a")))
    staying = asyncio.ensure_future(door.produce(records(b"b")))
    await asyncio.sleep(0)
    leaving.cancel()
    assert (await staying).error is Error.NONE
    await replica.stop()


async def test_a_node_that_does_not_lead_refuses_every_request_of_the_turn() -> None:
    replica = Replica(Network(), 1, voters_of(1, 2, 3))
    await replica.start()
    answers = await produced(replica, records(b"a"), records(b"b"))
    assert [answer.error for answer in answers] == [Error.NOT_LEADER_OR_FOLLOWER] * 2
    assert not any(answer.appended for answer in answers)
    await replica.stop()

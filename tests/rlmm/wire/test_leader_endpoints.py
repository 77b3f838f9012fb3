"""A node finds a leader that it has no address of: whoever names one says where it is (KIP-853)."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from kafka_formats.errors import StrandlineError
from rlmm.quorum.address_book import AddressBook
from rlmm.quorum.admin import QuorumAdmin
from tests.real.ports import free_ports
from tests.rlmm.quorum.following import collect, data
from tests.rlmm.wire.wire_network import WireReplica, leader_of, replicas


async def test_a_node_that_knows_one_follower_joins_and_proposes() -> None:
    async with replicas() as nodes:
        leader = await leader_of(nodes)
        offset = await leader.log.propose(data(b"before"), deadline_s=10)
        follower = next(node for node in nodes if node is not leader)
        port = free_ports(1)[0]
        joining = WireReplica(
            4, follower.ports, follower.wire, port=port, bootstrap=(follower.node_id,)
        )
        await joining.start()
        try:
            logs = [await collect(node, offset + 1) for node in (leader, joining)]
            assert logs[0] == logs[1]
            end = await joining.log.propose(data(b"after"), deadline_s=10) + 1
            assert (await collect(leader, end))[-1].value == b"after"
        finally:
            await joining.stop()


async def test_a_voter_that_was_away_finds_a_leader_that_moved_meanwhile() -> None:
    """All it knows of it, voter sets in its own log included, is where it was."""
    async with replicas() as nodes:
        leader = await leader_of(nodes)
        away, moved = (node for node in nodes if node is not leader)
        await leader.log.propose(data(b"before"), deadline_s=10)
        await away.stop()
        await moved.stop()
        moved.port, moved.advertises = free_ports(1)[0], True
        await moved.start()
        async with asyncio.timeout(60):
            while (leader := await leader_of(nodes)) is not moved:
                with suppress(StrandlineError):
                    await QuorumAdmin(leader.log.driver).transfer(moved.node_id, deadline_s=5)
                await asyncio.sleep(0.2)
        end = await moved.log.propose(data(b"after"), deadline_s=10) + 1
        await away.start()
        async with asyncio.timeout(20):
            assert (await collect(away, end))[-1].value == b"after"


def test_what_others_tell_counts_until_nobody_is_reached_there() -> None:
    book = AddressBook({1: ("a", 1)})
    assert book.told(1, ("b", 2))
    assert not book.told(1, ("b", 2))
    assert book.of(1) == ("b", 2)
    assert book.not_reached(1)
    assert not book.not_reached(1)
    assert book.of(1) == ("a", 1)


def test_an_address_that_only_others_told_is_kept_and_one_leader_is_remembered() -> None:
    book = AddressBook({})
    assert book.told(1, ("b", 2))
    assert not book.not_reached(1)
    assert book.everybody() == {1: ("b", 2)}
    assert book.told(2, ("c", 3))
    assert book.everybody() == {2: ("c", 3)}

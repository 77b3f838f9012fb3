"""Producers propose through any node; what it cannot say for certain, it does not claim."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from kafka_formats.errors import Conflict
from rlmm.log.committed import encode_proposals
from rlmm.metadata_log import Proposal
from rlmm.quorum.admin import QuorumAdmin
from rlmm.quorum.network_ports import PeerFailedError, ProduceAnswer
from rlmm.raft.actions import Role
from rlmm.raft.events import Propose, TransferLeadership
from rlmm.raft.messages import Error
from rlmm.wire.hot_codec import HotCodec
from rlmm.wire.peer_connection import PeerConnection, PeerSecurity, open_connection
from strandline.node import ambient
from tests.rlmm.log.crash_disk import Survivors
from tests.rlmm.quorum.following import collect, data
from tests.rlmm.wire.wire_network import (
    CLUSTER_ID,
    HOST,
    TOPIC_ID,
    WireReplica,
    leader_of,
    replicas,
)

HOT = HotCodec(CLUSTER_ID, TOPIC_ID)
MINUTE_MS = 60_000


@pytest.fixture
async def nodes() -> AsyncIterator[list[WireReplica]]:
    async with replicas() as running:
        yield running


@asynccontextmanager
async def producer(node: WireReplica) -> AsyncIterator[PeerConnection]:
    """A client with the secret, connected to this node only."""
    security = PeerSecurity(None, node.wire.credentials)
    connection = await open_connection(
        f"node {node.node_id}", (HOST, node.port), security, new_nonce=ambient.new_nonce
    )
    yield connection
    connection.abort("the test is over")


async def produce(
    connection: PeerConnection, *proposals: Proposal, timeout_ms: int = MINUTE_MS
) -> ProduceAnswer:
    batches = encode_proposals(proposals, base_offset=0, epoch=0, timestamp_ms=1)
    records = b"".join(batch.data for batch in batches)
    frame = await connection.ask(
        lambda correlation_id: HOT.encode_produce(records, timeout_ms, correlation_id)
    )
    answer = HOT.decode_produced(frame)
    assert answer is not None
    return answer


async def follower_of(nodes: list[WireReplica]) -> WireReplica:
    """One that does not lead, and knows who does."""
    leader = await leader_of(nodes)
    chosen = next(node for node in nodes if node is not leader)
    async with asyncio.timeout(10):
        while chosen.log.driver.core.leader_id != leader.node_id:
            await asyncio.sleep(0.005)
    return chosen


async def test_a_producer_is_answered_by_every_node_with_the_offsets_of_its_records(
    nodes: list[WireReplica],
) -> None:
    await leader_of(nodes)
    sent: dict[int, Proposal] = {}

    async def propose_at(node: WireReplica, number: int) -> None:
        async with producer(node) as connection:
            for each in range(5):
                name = b"%d-%d-%d" % (node.node_id, number, each)
                group = Proposal(None, name), Proposal(1_005, name), Proposal(None, name)
                answer = await produce(connection, *group)
                assert answer.error is Error.NONE
                sent.update(enumerate(group, start=answer.base_offset))

    await asyncio.gather(*(propose_at(node, number) for node in nodes for number in range(4)))
    assert len(sent) == 3 * 4 * 5 * 3
    for node in nodes:
        found = await collect(node, max(sent) + 1)
        assert {each.offset: Proposal(each.control_type, each.value) for each in found} == sent


async def test_what_arrives_together_is_forwarded_together(nodes: list[WireReplica]) -> None:
    follower = await follower_of(nodes)
    leader = await leader_of(nodes)
    proposed: list[int] = []
    feed = leader.log.driver.feed

    def watched(event: object) -> None:
        if isinstance(event, Propose):
            proposed.append(sum(batch.record_count for batch in event.batches))
        feed(event)  # type: ignore[arg-type]  # an Event, whatever it is

    leader.log.driver.feed = watched  # type: ignore[method-assign]  # to watch what comes
    async with producer(follower) as connection:
        asking = (produce(connection, *data(b"%d" % each)) for each in range(60))
        answers = await asyncio.gather(*asking)
    assert sorted(proposed, reverse=True)[0] > 20
    assert sum(proposed) == len({answer.base_offset for answer in answers}) == 60


async def test_a_forwarded_produce_is_taken_by_the_leader_and_by_nobody_else(
    nodes: list[WireReplica],
) -> None:
    follower = await follower_of(nodes)
    leader = await leader_of(nodes)
    (batch,) = encode_proposals(data(b"once"), base_offset=0, epoch=0, timestamp_ms=1)
    peers = follower.wire.peers()
    peers.set_addresses({node.node_id: (HOST, node.port) for node in nodes})
    for node in nodes:
        answer = await peers.produce(node.node_id, batch.data, deadline_ms=MINUTE_MS)
        if node is leader:
            assert answer.error is Error.NONE
        else:
            assert answer.error is Error.NOT_LEADER_OR_FOLLOWER
            assert not answer.appended
    await peers.close()
    end = await leader.log.propose(data(b"end"), deadline_s=10) + 1
    assert [each.value for each in await collect(follower, end)] == [b"once", b"end"]


async def test_what_a_client_may_not_propose_is_refused_with_a_word_in_the_log(
    nodes: list[WireReplica], caplog: pytest.LogCaptureFixture
) -> None:
    follower = await follower_of(nodes)
    async with producer(follower) as connection:
        assert (await produce(connection, Proposal(3, b""))).error is Error.INVALID_REQUEST
        assert (await produce(connection, *data(b"good"))).error is Error.NONE
    assert "control record type 3 is the log's own" in caplog.text


async def test_a_leader_that_goes_while_it_has_a_forwarded_proposal_leaves_it_unknown(
    nodes: list[WireReplica], monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = await follower_of(nodes)
    old = await leader_of(nodes)
    taken = asyncio.Event()

    async def keep(_: bytes) -> ProduceAnswer:
        taken.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(old.listener._answers._server, "produce", keep)
    async with producer(follower) as connection:
        asking = asyncio.create_task(produce(connection, *data(b"in doubt")))
        await taken.wait()
        old.log.driver.feed(TransferLeadership(asyncio.get_running_loop().create_future()))
        answer = await asking
        assert (answer.error, answer.appended) == (Error.REQUEST_TIMED_OUT, True)
        after = await produce(connection, *data(b"after"))
    assert after.error is Error.NONE
    # It was not sent a second time: that is for its producer to decide.
    assert [each.value for each in await collect(follower, after.base_offset + 1)] == [b"after"]


async def test_without_a_leader_nothing_was_appended_and_the_client_hears_that(
    nodes: list[WireReplica],
) -> None:
    alone, *others = nodes
    # The last leader: one that is not told of its leader's end remembers it for good.
    while (leader := await leader_of(nodes)) is not alone:
        with suppress(Conflict):
            await QuorumAdmin(leader.log.driver).transfer(alone.node_id, deadline_s=10)
    for other in others:
        await other.stop()
    async with asyncio.timeout(10):
        # While it remembers a leader, it may have handed the record on: then nobody knows.
        while alone.log.driver.core.role is Role.LEADER or alone.log.driver.core.leader_id >= 0:
            await asyncio.sleep(0.005)
    async with producer(alone) as connection:
        answer = await produce(connection, *data(b"nobody took it"), timeout_ms=50)
        assert (answer.error, answer.appended) == (Error.NOT_LEADER_OR_FOLLOWER, False)
        waiting = asyncio.create_task(produce(connection, *data(b"waits")))
        await others[0].start()
        assert (await waiting).error is Error.NONE
    await others[1].start()
    leader = await leader_of(nodes)
    end = await leader.log.propose(data(b"end"), deadline_s=10) + 1
    for node in nodes:
        assert [each.value for each in await collect(node, end)] == [b"waits", b"end"]


# asyncio leaves a connection that it accepted in the turn in which the listener closes unclosed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_through_changes_of_leader_every_answer_is_true(nodes: list[WireReplica]) -> None:
    """Producers at every node; leaders lose their power meanwhile."""
    committed: dict[int, bytes] = {}
    refused, in_doubt = set(), set()
    stopping = False

    async def client(node: WireReplica, number: int) -> None:
        each = 0
        while not stopping:
            if not node.running:
                await asyncio.sleep(0.01)
                continue
            try:
                async with producer(node) as connection:
                    while not stopping:
                        each += 1
                        value = b"%d-%d-%d" % (node.node_id, number, each)
                        in_doubt.add(value)
                        answer = await produce(connection, *data(value), timeout_ms=300)
                        if not answer.appended:
                            in_doubt.remove(value)
                        if answer.error is Error.NONE:
                            committed[answer.base_offset] = value
                        elif not answer.appended:
                            refused.add(value)
            except PeerFailedError:
                continue  # the node went: what was under way is in doubt

    working = [asyncio.create_task(client(node, number)) for node in nodes for number in range(3)]
    for _ in range(3):
        leader = await leader_of(nodes)
        before = len(committed)
        while len(committed) < before + 30:
            await asyncio.sleep(0.005)
        await leader.stop()
        leader.power_cut(Survivors.NONE)
        await leader_of(nodes)
        await leader.start()
    stopping = True
    await asyncio.gather(*working)
    leader = await leader_of(nodes)
    end = await leader.log.propose(data(b"end"), deadline_s=10) + 1
    for node in nodes:
        found = await collect(node, end)
        by_offset = {each.offset: each.value for each in found[:-1]}
        assert committed.items() <= by_offset.items()
        extra = [value for offset, value in by_offset.items() if offset not in committed]
        assert len(extra) == len(set(extra))
        assert set(extra) <= in_doubt
        assert refused.isdisjoint(by_offset.values())

"""Design 6.4, line by line: what goes on without a quorum leader, what waits, who is not ready."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx

from api.app import create_app
from kafka_formats.errors import OutcomeUnknown, RetryLater
from rlm.copy_plan import WhyNot
from rlm.limits import CopyLimits
from rlmm.metadata_limits import WRITE_DEADLINE_S
from rlmm.records import LogStart, LostRange
from rlmm.segment import TopicIdPartition
from strandline.node_readiness import NodeFacts, missing_until_ready
from strandline.settings import QuorumSettings
from tests.api.fakes import make_node
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import Node as RemoteNode
from tests.rlm.one_node import new_world
from tests.rlm.virtual_time import run_virtually
from tests.rlmm.metadata_node import (
    PARTITION,
    claim,
    copied,
    deleted,
    finished,
    incarnation,
    started,
)
from tests.rlmm.quorum.local_network import NODES, Network
from tests.rlmm.quorum.three_managers import Node, leading, three_nodes

BOUND_S = 1.0
"""What a caller is willing to wait."""
POLICY = {
    "retention_ms": None, "retention_bytes": None, "copy_paused": True, "delete_paused": False,
}  # fmt: skip
FIRST_COPIED = [(0, 9, "COPY_SEGMENT_FINISHED")]
LOOK_UP = "/v1/topics/orders/partitions/0/segments/lookup?epoch=1&offset="


async def eventually(condition: Callable[[], bool]) -> None:
    """Let time pass until `condition` holds."""
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.05)


async def lose_the_leader(network: Network, nodes: list[Node]) -> None:
    """No two nodes can talk any more, and each has noticed."""
    for node_id in NODES:
        network.isolate(node_id, NODES)
    await eventually(
        lambda: not {node.manager.describe().state for node in nodes} & {"leader", "follower"}
    )


@asynccontextmanager
async def asked(node: Node) -> AsyncIterator[httpx.AsyncClient]:
    """The node's HTTP interface."""
    context = replace(make_node().context, manager=node.manager)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(create_app(context)), base_url="http://localhost"
    ) as client:
        yield client


def test_look_ups_are_served_from_the_view_and_say_how_far_it_is(tmp_path: Path) -> None:
    async def main() -> None:
        network = Network()
        async with three_nodes(tmp_path, network) as nodes:
            leader = await leading(nodes)
            await copied(leader.manager, 3)
            end = leader.manager.applied_offset
            await eventually(
                lambda: all(
                    node.manager.applied_offset >= end and node.manager.is_ready(PARTITION)
                    for node in nodes
                )
            )
            await lose_the_leader(network, nodes)
            for node in nodes:
                async with asked(node) as client:
                    found = await client.get(f"{LOOK_UP}150")
                    assert found.json()["segment"]["start_offset"] == 100
                    assert int(found.headers["Strandline-Metadata-Offset"]) >= end
                    # It was ready before, and stays so: an empty answer is one.
                    assert (await client.get(f"{LOOK_UP}5000")).status_code == 404
                    later = {"Strandline-Min-Metadata-Offset": str(end + 1_000)}
                    late = await client.get(f"{LOOK_UP}150", headers=later)
                    assert (late.status_code, late.json()["kind"]) == (503, "retry_later")

    run_virtually(main)


def test_a_finished_upload_waits_for_a_leader_and_reads_go_on_meanwhile(tmp_path: Path) -> None:
    orders = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    orders.write(0, 10, 20, end=25)
    network = Network()

    async def main() -> None:
        async with three_nodes(tmp_path, network) as nodes:
            node = await leading(nodes)
            finishing = 0

            async def hook(step: str) -> None:
                nonlocal finishing
                finishing += step == "before COPY_SEGMENT_FINISHED"
                if finishing == 2 and not network.cut:
                    await lose_the_leader(network, nodes)

            world = new_world(tmp_path, (orders.log_dir,))
            remote, _ = world.node(
                node.manager, incarnation(), hook=hook, limits=CopyLimits(propose_deadline_s=5.0)
            )
            run = asyncio.create_task(remote.remote_log.run_once())
            await eventually(lambda: bool(network.cut))
            await asyncio.sleep(30)
            assert not run.done()
            assert remote.rows(orders.partition) == [
                (0, 9, "COPY_SEGMENT_FINISHED"),
                (10, 19, "COPY_SEGMENT_STARTED"),
            ]
            assert await everything_of_the_first(remote, orders.partition) == orders.log_bytes(0)
            network.cut.clear()
            assert (await run).complete
            assert remote.finished(orders.partition) == [(0, 9), (10, 19)]
            assert len(remote.pool.jobs) == 2  # nothing was uploaded twice
            await remote.remote_log.close()

    run_virtually(main)


def test_claims_and_copies_wait_for_a_leader_and_then_go_on_by_themselves(tmp_path: Path) -> None:
    orders = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    orders.write(0, 10, 20, end=25)

    async def main() -> None:
        network = Network()
        async with three_nodes(tmp_path, network) as nodes:
            node = await leading(nodes)
            await lose_the_leader(network, nodes)
            world = new_world(tmp_path, (orders.log_dir,))
            remote, _ = world.node(
                node.manager, incarnation(), limits=CopyLimits(propose_deadline_s=5.0)
            )
            await remote.remote_log.start()
            await asyncio.sleep(60)
            (waiting,) = remote.remote_log.statuses()
            assert waiting.why_not_copying is WhyNot.METADATA_UNAVAILABLE
            assert (remote.pool.jobs, remote.accepted) == ([], [])
            network.cut.clear()
            await eventually(lambda: remote.finished(orders.partition) == [(0, 9), (10, 19)])
            await remote.remote_log.close()
            await remote.assert_quiesced()

    run_virtually(main)


def test_no_object_goes_before_a_leader_committed_that_it_may(tmp_path: Path) -> None:
    orders = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    orders.write(0, 10, end=15)

    async def main() -> None:
        network = Network()
        async with three_nodes(tmp_path, network) as nodes:
            node = await leading(nodes)

            async def hook(step: str) -> None:
                if step == "before put .rsm-manifest" and len(remote.pool.jobs) == 1:
                    await lose_the_leader(network, nodes)
                    raise RetryLater("the store is away")

            world = new_world(tmp_path, (orders.log_dir,))
            world.store.metadata = node.manager
            limits = CopyLimits(propose_deadline_s=5.0, upload_deadline_s=10.0, upload_margin_s=1.0)
            remote, _ = world.node(node.manager, incarnation(), hook=hook, limits=limits)
            await remote.remote_log.start()
            await eventually(lambda: bool(network.cut))
            of_the_attempt = await remote.keys()
            assert len(of_the_attempt) == 3  # the marker, .log and .indexes
            await asyncio.sleep(30)
            assert await remote.keys() == of_the_attempt
            assert remote.rows(orders.partition) == [(0, 9, "COPY_SEGMENT_STARTED")]
            network.cut.clear()
            await eventually(lambda: remote.rows(orders.partition) == FIRST_COPIED)
            await remote.remote_log.close()
            await remote.assert_quiesced()  # deletes in their order is one part of it

    run_virtually(main)


async def everything_of_the_first(node: RemoteNode, tip: TopicIdPartition) -> bytes:
    first = next(node.metadata.list_remote_log_segments(tip))
    return b"".join([piece async for piece in node.remote_log.open_log(first.segment_id.id)])


def test_every_write_ends_in_a_retriable_error_within_its_bound(tmp_path: Path) -> None:
    async def main() -> None:
        network = Network()
        async with three_nodes(tmp_path, network) as nodes:
            leader = await leading(nodes)
            token = await copied(leader.manager, 1)
            begun = started(1, token)
            await leader.manager.add_remote_log_segment_metadata(begun)
            await lose_the_leader(network, nodes)
            clock = asyncio.get_running_loop().time
            for node in nodes:
                manager = node.manager
                before = manager.digest()
                writes: tuple[Callable[[], Awaitable[object]], ...] = (
                    lambda: manager.claim_partition(claim(epoch=2), deadline_s=BOUND_S),  # noqa: B023
                    lambda: manager.add_remote_log_segment_metadata(  # noqa: B023
                        started(2, token), deadline_s=BOUND_S
                    ),
                    lambda: manager.update_remote_log_segment_metadata(  # noqa: B023
                        finished(begun), deadline_s=BOUND_S
                    ),
                    lambda: manager.update_remote_log_segment_metadata(  # noqa: B023
                        deleted(begun, token=token), deadline_s=BOUND_S
                    ),
                    lambda: manager.record_log_start(  # noqa: B023
                        LogStart(PARTITION, token, 1, 50), deadline_s=BOUND_S
                    ),
                    lambda: manager.record_lost_range(  # noqa: B023
                        LostRange(PARTITION, token, 100, 150, "gone"), deadline_s=BOUND_S
                    ),
                )
                for write in writes:
                    began = clock()
                    try:
                        await write()
                    except (RetryLater, OutcomeUnknown):
                        assert clock() - began <= BOUND_S + 0.1
                    else:
                        raise AssertionError("written without a majority")
                assert manager.digest() == before

    run_virtually(main)


def test_a_change_asked_for_over_http_ends_in_a_retriable_error(tmp_path: Path) -> None:
    async def main() -> None:
        network = Network()
        async with three_nodes(tmp_path, network) as nodes:
            await copied((await leading(nodes)).manager, 1)
            await lose_the_leader(network, nodes)
            for node in nodes:
                async with asked(node) as client:
                    async with asyncio.timeout(WRITE_DEADLINE_S + 1):
                        answer = await client.put("/v1/topics/orders/policy", json=POLICY)
                    assert answer.status_code in (503, 504)
                    assert answer.json()["kind"] in ("retry_later", "outcome_unknown")

    run_virtually(main)


def test_nodes_are_not_ready_once_they_heard_of_no_leader_for_long_and_are_again_by_themselves(
    tmp_path: Path,
) -> None:
    settings = QuorumSettings(ready_silence_max_s=10, ready_lag_max=1)

    def missing(node: Node) -> list[str]:
        manager = node.manager
        facts = NodeFacts(
            None,
            manager.is_caught_up(),
            manager.describe(),
            manager.applied_offset,
            int(asyncio.get_running_loop().time() * 1000),
        )
        return missing_until_ready(facts, settings)

    async def main() -> None:
        network = Network()
        async with three_nodes(tmp_path, network) as nodes:
            leader = await leading(nodes)
            await copied(leader.manager, 1)
            await eventually(lambda: not any(map(missing, nodes)))
            lagging = next(node for node in nodes if node is not leader)
            network.isolate(lagging.replica.node_id, NODES)
            await asyncio.sleep(9)
            assert missing(lagging) == []  # a change of leader does not take longer
            await asyncio.sleep(2)
            assert "no leader" in missing(lagging)[0]
            assert not missing(leader)
            await copied(leader.manager, 1, first=1, boot=2)
            network.cut.clear()
            await eventually(lambda: not missing(lagging))
            assert lagging.manager.remote_log_segment_metadata(PARTITION, 1, 150) is not None
            await lose_the_leader(network, nodes)
            await asyncio.sleep(15)
            assert all("Bring back a majority" in missing(node)[0] for node in nodes)
            network.cut.clear()
            await eventually(lambda: not any(map(missing, nodes)))

    run_virtually(main)


def test_a_partition_whose_leadership_changed_is_not_ready_before_there_is_a_leader(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        network = Network()
        async with three_nodes(tmp_path, network) as nodes:
            leader = await leading(nodes)
            await copied(leader.manager, 1)
            other = replace(PARTITION, partition=1)
            await eventually(lambda: all(node.manager.is_ready(PARTITION) for node in nodes))
            await lose_the_leader(network, nodes)
            for node in nodes:
                node.manager.on_partition_leadership_changes([PARTITION])
            await asyncio.sleep(5)
            for node in nodes:
                assert (node.manager.is_ready(PARTITION), node.manager.is_ready(other)) == (
                    False,
                    True,
                )
                async with asked(node) as client:
                    empty = await client.get(f"{LOOK_UP}5000")
                    assert (empty.status_code, empty.json()["kind"]) == (503, "retry_later")
            network.cut.clear()
            await eventually(lambda: all(node.manager.is_ready(PARTITION) for node in nodes))
            async with asked(nodes[0]) as client:
                assert (await client.get(f"{LOOK_UP}5000")).status_code == 404

    run_virtually(main)


def test_a_node_that_lags_is_not_ready_until_it_has_what_the_others_have(tmp_path: Path) -> None:
    async def main() -> None:
        network = Network()
        async with three_nodes(tmp_path, network) as nodes:
            leader = await leading(nodes)
            behind = next(node for node in nodes if node is not leader)
            await eventually(lambda: behind.manager.is_ready(PARTITION))
            network.isolate(behind.replica.node_id, NODES)
            await copied(leader.manager, 2)
            behind.manager.on_partition_leadership_changes([PARTITION])
            await asyncio.sleep(5)
            assert not behind.manager.is_ready(PARTITION)
            assert behind.manager.remote_log_segment_metadata(PARTITION, 1, 150) is None
            network.cut.clear()
            await eventually(lambda: behind.manager.is_ready(PARTITION))
            assert behind.manager.remote_log_segment_metadata(PARTITION, 1, 150) is not None

    run_virtually(main)


def test_a_node_that_starts_without_a_leader_is_ready_for_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        network = Network()
        async with three_nodes(tmp_path, network) as nodes:
            await copied((await leading(nodes)).manager, 1)
            again = nodes[0]
            await eventually(
                lambda: again.manager.remote_log_segment_metadata(PARTITION, 1, 50) is not None
            )
            await lose_the_leader(network, nodes)
            await again.stop()
            await again.start()
            await asyncio.sleep(5)
            assert (again.manager.is_ready(PARTITION), again.manager.is_caught_up()) == (False,) * 2
            async with asked(again) as client:
                assert (await client.get(f"{LOOK_UP}50")).status_code == 200
                empty = await client.get(f"{LOOK_UP}5000")
                assert (empty.status_code, empty.json()["kind"]) == (503, "retry_later")
            network.cut.clear()
            await eventually(lambda: again.manager.is_ready(PARTITION))
            assert again.manager.is_caught_up()
            assert again.manager.remote_log_segment_metadata(PARTITION, 1, 50) is not None

    run_virtually(main)

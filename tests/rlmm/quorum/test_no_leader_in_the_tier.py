"""A node without a quorum leader: uploads end, reads of the tier go on, the rest waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kafka_formats.errors import RetryLater
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.cluster_settings.known_settings import Setting
from rlm.control.surroundings import CopyLimits
from rlm.control.why_not import WhyNot
from rlmm.records.control_records import ClusterSetting
from rlmm.records.setting_scope import CLUSTER
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import Node as RemoteNode
from tests.rlm.one_node import new_world
from tests.rlm.retention.test_topic_deletion import ONLY_THE_MARKER, mark
from tests.rlm.test_service_retention import EVERYTHING_IS_OLD, decide
from tests.rlm.virtual_time import run_virtually
from tests.rlmm.metadata_node import incarnation
from tests.rlmm.quorum.local_network import NODES, Network
from tests.rlmm.quorum.lost_leader import PATIENT, asked, eventually, lose_the_leader
from tests.rlmm.quorum.three_managers import leading, three_nodes

FIRST_COPIED = [(0, 9, "COPY_SEGMENT_FINISHED")]


def two_segments(path: Path) -> KafkaLog:
    """[0, 9] and [10, 19], sealed, and an active one."""
    log = KafkaLog.create(new_log_dir(path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, end=25)
    return log


async def everything_of_the_first(node: RemoteNode, tip: TopicIdPartition) -> bytes:
    first = next(node.metadata.list_remote_log_segments(tip))
    return b"".join([piece async for piece in node.parts.reads.open_log(first.segment_id.id)])


def test_a_finished_upload_waits_for_a_leader_and_reads_go_on_meanwhile(tmp_path: Path) -> None:
    orders = two_segments(tmp_path)
    network = Network(settings=PATIENT)

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
    orders = two_segments(tmp_path)

    async def main() -> None:
        network = Network(settings=PATIENT)
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
        network = Network(settings=PATIENT)
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


def test_an_upload_under_way_ends_without_a_leader_and_is_not_repeated(tmp_path: Path) -> None:
    orders = two_segments(tmp_path)

    async def main() -> None:
        network = Network(settings=PATIENT)
        async with three_nodes(tmp_path, network) as nodes:
            node = await leading(nodes)
            steps: list[str] = []

            async def hook(step: str) -> None:
                steps.append(step)
                if step == "before put .indexes" and steps.count(step) == 1:
                    await lose_the_leader(network, nodes)

            remote, _ = new_world(tmp_path, (orders.log_dir,)).node(
                node.manager, incarnation(), hook=hook, limits=CopyLimits(propose_deadline_s=5.0)
            )
            run = asyncio.create_task(remote.remote_log.run_once())
            await eventually(lambda: "before COPY_SEGMENT_FINISHED" in steps)
            await asyncio.sleep(30)
            assert network.cut
            assert await remote.keys() == await remote.expected_keys(), "all of it is uploaded"
            assert remote.rows(orders.partition) == [(0, 9, "COPY_SEGMENT_STARTED")]
            network.cut.clear()
            assert (await run).complete
            assert remote.finished(orders.partition) == [(0, 9), (10, 19)]
            assert steps.count("before complete .log") == 2  # one a segment
            await remote.remote_log.close()
            await remote.assert_quiesced()

    run_virtually(main)


def test_tiered_data_is_read_without_a_leader_and_the_answer_says_how_far_metadata_is(
    tmp_path: Path,
) -> None:
    orders = two_segments(tmp_path)

    async def main() -> None:
        network = Network(settings=PATIENT)
        async with three_nodes(tmp_path, network) as nodes:
            node = await leading(nodes)
            remote, _ = new_world(tmp_path, (orders.log_dir,)).node(
                node.manager, incarnation(), data_plane=True
            )
            assert (await remote.remote_log.run_once()).complete
            first = next(remote.metadata.list_remote_log_segments(orders.partition))
            await lose_the_leader(network, nodes)
            applied = node.manager.applied_offset
            async with asked(node, remote.parts) as client:
                for path, stored in (
                    (f"segments/{first.segment_id.id}/log", orders.log_bytes(0)),
                    ("records?offset=0", orders.log_bytes(0) + orders.log_bytes(10)),
                ):
                    answer = await client.get(f"/v1/topics/orders/partitions/0/{path}")
                    assert (answer.status_code, answer.content) == (200, stored)
                    assert int(answer.headers["Strandline-Metadata-Offset"]) == applied
            await remote.remote_log.close()

    run_virtually(main)


async def everything_is_old(remote: RemoteNode, _: TopicIdPartition) -> None:
    await decide(remote, EVERYTHING_IS_OLD)


async def marked_without_grace(remote: RemoteNode, partition: TopicIdPartition) -> None:
    await mark(remote, partition, 0)


@pytest.mark.parametrize(
    ("due", "step"),
    [
        (everything_is_old, "before record_log_start"),
        (everything_is_old, "before DELETE_SEGMENT_STARTED"),
        (marked_without_grace, "before DELETE_PARTITION_STARTED"),
        (marked_without_grace, "before DELETE_SEGMENT_STARTED"),
    ],
)
def test_what_is_due_to_go_waits_for_a_leader_and_then_goes(
    tmp_path: Path,
    due: Callable[[RemoteNode, TopicIdPartition], Awaitable[None]],
    step: str,
) -> None:
    orders = two_segments(tmp_path)
    limits = CopyLimits(
        propose_deadline_s=1.0,
        scan_interval_s=1.0,
        retention_interval_s=1.0,
        backoff_max_s=1.0,
        delete_delay_s=1.0,
        deletion_settle_s=1.0,
        upload_margin_s=1.0,
    )

    async def main() -> None:
        network = Network(settings=PATIENT)
        async with three_nodes(tmp_path, network) as nodes:
            node = await leading(nodes)

            async def hook(name: str) -> None:
                if name == step and is_due and not lost.is_set():
                    await lose_the_leader(network, nodes)
                    lost.set()

            is_due, lost = False, asyncio.Event()
            world = new_world(tmp_path, (orders.log_dir,))
            world.store.metadata = node.manager
            remote, _ = world.node(node.manager, incarnation(), hook=hook, limits=limits)
            await remote.remote_log.start()
            await eventually(lambda: remote.finished(orders.partition) == [(0, 9), (10, 19)])
            is_due = True
            await due(remote, orders.partition)
            await eventually(lost.is_set)
            rows, keys = remote.rows(orders.partition), await remote.keys()
            proposed = len(remote.proposed)
            await asyncio.sleep(10)
            assert len(remote.proposed) > proposed, "it is asked for again and again"
            assert (remote.rows(orders.partition), await remote.keys()) == (rows, keys)
            assert (len(rows), len(keys)) == (2, 7)
            network.cut.clear()
            await eventually(lambda: not remote.rows(orders.partition))
            assert await remote.keys() == ONLY_THE_MARKER
            await remote.remote_log.close()
            await remote.assert_quiesced()  # deletes in their order is one part of it

    run_virtually(main)


def test_a_restarted_node_removes_nothing_before_it_can_know_of_a_pause(tmp_path: Path) -> None:
    """Deleting was paused while it was down, and it hears of no leader."""
    orders = two_segments(tmp_path)
    limits = CopyLimits(scan_interval_s=1.0, deletion_settle_s=1.0, upload_margin_s=1.0)

    async def main() -> None:
        network = Network(settings=PATIENT)
        async with three_nodes(tmp_path, network) as nodes:
            node = await leading(nodes)
            again = next(each for each in nodes if each is not node)
            world = new_world(tmp_path, (orders.log_dir,))
            remote, _ = world.node(node.manager, incarnation(), limits=limits)
            await remote.remote_log.start()
            await eventually(lambda: remote.finished(orders.partition) == [(0, 9), (10, 19)])
            await mark(remote, orders.partition, 0)
            marked = [(start, start + 9, "DELETE_SEGMENT_STARTED") for start in (0, 10)]
            await eventually(lambda: remote.rows(orders.partition) == marked)
            end = node.manager.applied_offset
            await eventually(lambda: again.manager.applied_offset >= end)
            await again.stop()
            pause = ClusterSetting(CLUSTER, Setting.DELETING_PAUSED, "true", "ann", "", -1)
            await node.manager.set_cluster_setting(pause)
            network.isolate(again.replica.node_id, NODES)
            await again.start()
            before = await remote.keys()
            other, _ = world.node(again.manager, incarnation(2), limits=limits)
            await other.remote_log.start()
            await asyncio.sleep(120)
            assert (len(before), await remote.keys()) == (7, before)
            assert "not caught up" in str(other.parts.held_back.deleting("orders"))
            network.cut.clear()
            await eventually(again.manager.is_caught_up)
            assert "paused for the cluster" in str(other.parts.held_back.deleting("orders"))
            for each in (other, remote):
                await each.remote_log.close()

    run_virtually(main)

"""Metadata calls of a broker's plug-in, over HTTP, on a real view and log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from api.routes.broker import Call
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.delegated import segment_lists, wire
from rlm.leadership.leadership import Leads, NotLeading
from rlmm.partition_state import Mode
from rlmm.records.control_records import PartitionClaim, PartitionModeChange
from rlmm.segment import (
    Incarnation,
    PartitionDeleteState,
    RemotePartitionDeleteMetadata,
    SegmentState,
)
from sim.tier import plugin_bodies
from tests.api.fake_audit import FakeAudit
from tests.rlm.delegated.delegating import NO_TOPICS, broker_of
from tests.rlm.delegated.plugin_client import PluginClient, ToldError, client_of, refused, segment
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.one_node import Node, new_world
from tests.rlm.planner_facts import uuid
from tests.rlm.virtual_time import run_virtually

FINISHED = SegmentState.COPY_SEGMENT_FINISHED
DELETING = SegmentState.DELETE_SEGMENT_STARTED
DELETED = SegmentState.DELETE_SEGMENT_FINISHED
CUSTOM = b"custom"


@asynccontextmanager
async def beside(
    tmp_path: Path, orders: KafkaLog, broker: FakeBroker | None = None
) -> AsyncIterator[tuple[Node, PluginClient]]:
    """A running node beside a broker that leads the partition; nothing is announced yet."""
    world = new_world(tmp_path, (orders.log_dir,))
    async with world.boot(broker=broker or broker_of(orders), topics=NO_TOPICS) as node:
        await node.remote_log.start()
        plugin = client_of(node)
        async with plugin.http:
            yield node, plugin
        await node.remote_log.close()


def test_a_segment_goes_through_its_life_as_the_broker_says(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with beside(tmp_path, orders) as (node, plugin):
            tip = orders.partition
            await plugin.announce(tip)
            await asyncio.sleep(1)
            assert await plugin.ready(tip) == (True, "")
            assert await plugin.highest(tip, 0) is None
            assert await plugin.look_up(tip, 0, 5) is None
            row = segment(tip, 1, 0, 9)
            await plugin.add(row)
            await plugin.add(row)
            assert await plugin.look_up(tip, 0, 5) is None
            await plugin.update(row, FINISHED, CUSTOM)
            await plugin.update(row, FINISHED, CUSTOM)
            found = await plugin.look_up(tip, 0, 5)
            assert found is not None
            assert (found.segment_id, found.custom_metadata) == (row.segment_id, CUSTOM)
            assert await plugin.highest(tip, 0) == 9
            assert await plugin.look_up(tip, 0, 5, with_txn_index=True) == found
            await plugin.update(row, DELETING)
            marked_at = node.metadata.applied_offset
            await plugin.update(row, DELETING)
            assert node.metadata.applied_offset == marked_at, "nothing new was to be recorded"
            assert await plugin.look_up(tip, 0, 5) is None
            await plugin.delete(row)
            await plugin.update(row, DELETED)
            await asyncio.sleep(120)
            assert node.rows(tip) == []
            await plugin.update(row, DELETED)
            await plugin.delete(row)

    run_virtually(main)


def test_nothing_is_said_of_a_partition_before_it_is_announced_claimed_and_caught_up(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """[LOSS-2] [LOSS-4] [LOSS-5] An empty answer would make the broker delete the tier."""

    async def main() -> None:
        broker = broker_of(orders)
        broker.words[("orders", 0)] = Leads(1, 25)  # the checkpoint does not have that epoch yet
        async with beside(tmp_path, orders, broker) as (_, plugin):
            tip = orders.partition
            told = await refused(plugin.ready(tip))
            assert (told.kind, told.reason) == ("retry_later", "ANNOUNCE")
            await plugin.announce()
            for question in (
                plugin.look_up(tip, 0, 5),
                plugin.look_up(tip, 0, 5, with_txn_index=True),
                plugin.highest(tip, 0),
                plugin.page(tip),
            ):
                assert (await refused(question)).kind == "retry_later"
            assert (await plugin.ready(tip))[0] is False
            plugin.seq = 2
            await plugin.announce(tip)
            await asyncio.sleep(10)
            ready, why = await plugin.ready(tip)
            assert not ready
            assert "checkpoint ends at 0" in why
            for question in (
                plugin.look_up(tip, 0, 5),
                plugin.look_up(tip, 0, 5, with_txn_index=True),
                plugin.highest(tip, 0),
                plugin.page(tip),
            ):
                assert (await refused(question)).kind == "retry_later"
            broker.words[("orders", 0)] = Leads(0, 25)
            await asyncio.sleep(10)
            assert await plugin.ready(tip) == (True, "")

    run_virtually(main)


def test_a_list_is_sent_once_and_again_only_when_something_changed(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_lists, "PAGE_ROWS", 2)

    async def main() -> None:
        async with beside(tmp_path, orders) as (_, plugin):
            tip = orders.partition
            await plugin.announce(tip)
            await asyncio.sleep(1)
            for number in range(5):
                await plugin.add(segment(tip, number + 1, number * 10, number * 10 + 9))
            tag, rows, cursor = await plugin.page(tip)
            seen = list(rows or ())
            while cursor is not None:
                again, rows, cursor = await plugin.page(tip, cursor=cursor)
                assert again == tag
                seen += rows or ()
            assert [row.start_offset for row in seen] == [0, 10, 20, 30, 40]
            assert await plugin.page(tip, tag=tag) == (tag, None, None)
            await plugin.update(seen[0], FINISHED, CUSTOM)
            changed, rows, _ = await plugin.page(tip, 0, tag=tag)
            assert changed != tag
            assert len(rows or ()) == 2
            assert (await refused(plugin.page(tip, cursor=b"x"))).kind == "invalid_request"

    run_virtually(main)


def test_a_list_is_answered_by_its_changes_to_a_plug_in_that_takes_them(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with beside(tmp_path, orders) as (node, plugin):
            tip = orders.partition
            await plugin.announce(tip)
            await asyncio.sleep(1)
            for number in range(3):
                await plugin.add(segment(tip, number + 1, number * 10, number * 10 + 9))
            first = await plugin.list_changes(tip, None)
            assert (first.form, len(first.rows)) == (wire.LIST_PAGE, 3)
            await plugin.update(first.rows[0], FINISHED, CUSTOM)
            changed = await plugin.list_changes(tip, first.tag)
            assert changed.form == wire.LIST_CHANGES
            assert [row.state for row in changed.rows] == [FINISHED]
            same = await plugin.list_changes(tip, changed.tag)
            assert same == plugin_bodies.ListAnswer(wire.LIST_SAME, changed.tag)
            # A plug-in that never heard of changes, and a tag of another life of the node.
            assert len((await plugin.page(tip, tag=first.tag))[1] or ()) == 3
            again = client_of(node)
            async with again.http:
                assert (await again.list_changes(tip, changed.tag)).form == wire.LIST_PAGE

    run_virtually(main)


def test_a_broker_that_was_replaced_writes_nothing_more(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        broker = broker_of(orders)
        async with beside(tmp_path, orders, broker) as (node, plugin):
            tip = orders.partition
            await plugin.announce(tip)
            await asyncio.sleep(1)
            row = segment(tip, 1, 0, 9)
            await plugin.add(row)
            other = Incarnation(9, uuid(99), 1)
            await node.metadata.claim_partition(
                PartitionClaim(
                    tip, Mode.DELEGATED, 1, other, 1, (EpochEntry(0, 0), EpochEntry(1, 25))
                )
            )
            assert (await refused(plugin.update(row, FINISHED, CUSTOM))).kind == "fenced"
            assert (await refused(plugin.update(row, DELETING))).kind == "fenced"
            ready, why = await plugin.ready(tip)
            assert not ready
            assert "node 9 holds the claim" in why
            broker.words[("orders", 0)] = NotLeading()
            assert (await refused(plugin.add(segment(tip, 2, 10, 19)))).kind == "retry_later"

    run_virtually(main)


def test_a_plug_in_deletes_no_partition_that_another_broker_leads(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """Its token is good for its own broker's partitions: of all others nobody announced it any."""

    async def main() -> None:
        async with beside(tmp_path, orders, broker_of(orders)) as (node, plugin):
            tip = orders.partition
            await plugin.announce(tip)
            await asyncio.sleep(1)
            await plugin.add(segment(tip, 1, 0, 9))
            other = Incarnation(9, uuid(99), 1)
            await node.metadata.claim_partition(
                PartitionClaim(
                    tip, Mode.DELEGATED, 1, other, 1, (EpochEntry(0, 0), EpochEntry(1, 25))
                )
            )
            await plugin.announce()
            for step in list(PartitionDeleteState)[:2]:
                put = RemotePartitionDeleteMetadata(tip, 1, 5, step)
                told = await refused(
                    plugin.call("delete-partition", plugin_bodies.delete_partition(put))
                )
                assert told.kind == "fenced"
            state = node.metadata.partition_state(tip)
            assert state is not None
            assert state.delete_state is None

    run_virtually(main)


def test_the_steps_of_a_partition_s_deletion_may_be_said_again(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """The audit has each step once, with the holder of the token."""

    async def main() -> None:
        async with beside(tmp_path, orders, broker_of(orders)) as (node, plugin):
            tip, audit = orders.partition, FakeAudit([])
            await plugin.announce(tip)
            await asyncio.sleep(1)
            await plugin.add(segment(tip, 1, 0, 9))
            again = client_of(node, audit)
            async with again.http:
                for step in list(PartitionDeleteState)[:2]:
                    put = RemotePartitionDeleteMetadata(tip, 1, 5, step)
                    for _ in range(2):
                        await again.call("delete-partition", plugin_bodies.delete_partition(put))
            assert [(line.action.value, line.partition, line.by) for line in audit.lines] == [
                ("partition_marked", tip, "anonymous"),
                ("partition_delete_started", tip, "anonymous"),
            ]

    run_virtually(main)


def test_a_late_call_of_an_earlier_leadership_changes_nothing(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with beside(tmp_path, orders, broker_of(orders)) as (node, plugin):
            tip = orders.partition
            late = PluginClient(plugin.http)
            await plugin.announce(tip)
            await asyncio.sleep(1)
            row = segment(tip, 1, 0, 9)
            await late.add(row)
            plugin.seq = 2
            await plugin.announce(tip)
            await asyncio.sleep(1)
            assert (await plugin.ready(tip))[0]
            for call in (
                late.add(segment(tip, 2, 10, 19)),
                late.update(row, FINISHED, CUSTOM),
                late.update(row, DELETING),
            ):
                told = await refused(call)
                assert (told.kind, told.reason) == ("retry_later", "")
            assert [each.state for each in node.metadata.list_remote_log_segments(tip)] == [
                row.state
            ]
            await plugin.update(row, DELETING)

    run_virtually(main)


def test_a_call_from_before_a_claim_changes_nothing_though_nothing_was_announced(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """A broker of ZooKeeper announces no leadership that goes on; an announcement may be lost."""

    async def main() -> None:
        broker = broker_of(orders)
        async with beside(tmp_path, orders, broker) as (node, plugin):
            tip = orders.partition
            await plugin.announce(tip)
            await asyncio.sleep(1)
            row = segment(tip, 1, 0, 9)
            for unheard in (-1, node.metadata.applied_offset - 1):
                plugin.applied = unheard
                assert "before it knew of the claim" in (await refused(plugin.add(row))).detail
            plugin.applied = node.metadata.applied_offset
            await plugin.add(row)
            await plugin.update(row, FINISHED, CUSTOM)
            orders.set_epochs((0, 0), (1, 25))
            broker.words[("orders", 0)] = Leads(1, 25)
            await asyncio.sleep(60)
            assert claimed_epoch(node, tip) == 1
            for call in (plugin.add(segment(tip, 2, 10, 19)), plugin.update(row, DELETING)):
                told = await refused(call)
                assert (told.kind, told.reason) == ("retry_later", "")
            assert [each.state for each in node.metadata.list_remote_log_segments(tip)] == [
                FINISHED
            ]
            plugin.applied = node.metadata.applied_offset
            await plugin.add(segment(tip, 2, 10, 19))
            plugin.applied = None
            await plugin.update(row, DELETING)
            told = await refused(plugin.call("ready", b"", {"Strandline-Applied": "1e3"}))
            assert (told.kind, told.status) == ("invalid_request", 400)

    run_virtually(main)


def test_a_copy_is_finished_under_the_claim_that_it_began_under(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with beside(tmp_path, orders) as (node, plugin):
            tip = orders.partition
            await plugin.announce(tip)
            await asyncio.sleep(1)
            row = segment(tip, 1, 0, 9)
            await plugin.add(row)
            me = node.parts.driver.around.identity.incarnation
            later = (EpochEntry(0, 0), EpochEntry(1, 25))
            await node.metadata.claim_partition(
                PartitionClaim(tip, Mode.DELEGATED, 1, me, 99, later)
            )
            assert (await refused(plugin.update(row, FINISHED, CUSTOM))).kind == "fenced"
            assert node.metadata.highest_offset_for_epoch(tip, 0) is None

    run_virtually(main)


def claimed_epoch(node: Node, tip: TopicIdPartition) -> int:
    """The leader epoch of the standing claim."""
    state = node.metadata.partition_state(tip)
    assert state is not None
    assert state.claim is not None
    return state.claim.leader_epoch


def test_a_paused_partition_is_read_and_never_written(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with beside(tmp_path, orders) as (node, plugin):
            tip = orders.partition
            await plugin.announce(tip)
            await asyncio.sleep(1)
            row = segment(tip, 1, 0, 9)
            await plugin.add(row)
            await plugin.update(row, FINISHED, CUSTOM)
            state = node.metadata.partition_state(tip)
            assert state is not None
            await node.metadata.set_partition_mode(
                PartitionModeChange(tip, Mode.PAUSED, state.mode_offset)
            )
            await asyncio.sleep(10)
            assert await plugin.look_up(tip, 0, 5) is not None
            assert (await plugin.ready(tip))[0] is False
            for write in (
                plugin.page(tip), plugin.add(segment(tip, 2, 10, 19)), plugin.update(row, DELETING)
            ):  # fmt: skip
                assert (await refused(write)).kind == "retry_later"

    run_virtually(main)


def test_objects_are_never_deleted_of_a_segment_that_is_not_marked(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with beside(tmp_path, orders) as (_, plugin):
            tip = orders.partition
            await plugin.announce(tip)
            await asyncio.sleep(1)
            row = segment(tip, 1, 0, 9)
            await plugin.add(row)
            assert (await refused(plugin.delete(row))).kind == "conflict"
            await plugin.update(row, FINISHED, CUSTOM)
            assert (await refused(plugin.delete(row))).kind == "conflict"

    run_virtually(main)


@pytest.mark.parametrize(
    ("headers", "kind", "reason"),
    [
        ({"Strandline-Broker-Protocol": "2"}, "refused", "PROTOCOL"),
        ({"Content-Type": "application/json"}, "unsupported_media_type", ""),
        ({"Strandline-Session": "x"}, "invalid_request", ""),
        ({"Strandline-Session": f"{uuid(1)};x"}, "invalid_request", ""),
        ({"Strandline-Session": f"{uuid(1)};99"}, "retry_later", "ANNOUNCE"),
    ],
)
def test_what_does_not_speak_the_protocol_is_told_in_headers(
    tmp_path: Path, orders: KafkaLog, headers: dict[str, str], kind: str, reason: str
) -> None:
    async def main() -> None:
        async with beside(tmp_path, orders) as (_, plugin):
            await plugin.announce(orders.partition)
            call = plugin.call("ready", plugin_bodies.ready(orders.partition), headers)
            told = await refused(call)
            assert (told.kind, told.reason) == (kind, reason)
            assert told.detail.isascii()
            assert "\n" not in told.detail
            told = await refused(plugin.call("ready", b"\0"))
            assert told.kind == "invalid_request"
            assert (await refused(plugin.call("no-such-call", b""))).kind == "invalid_request"

    run_virtually(main)


def test_no_body_does_more_than_be_refused(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with beside(tmp_path, orders) as (node, plugin):
            tip = orders.partition
            await plugin.announce(tip)
            await asyncio.sleep(1)
            row = segment(tip, 1, 0, 9)
            await plugin.add(row)
            good = plugin_bodies.row(row)
            chance, statuses = Random(1), set()
            for call in Call:
                for _ in range(60):
                    body = bytearray(good)
                    for _ in range(chance.randrange(4)):
                        body[chance.randrange(len(body))] = chance.randrange(256)
                    cut = chance.choice((len(body), chance.randrange(len(body))))
                    try:
                        await plugin.call(call, bytes(body[:cut]))
                    except ToldError as told:
                        statuses.add(told.status)
            assert statuses <= {400, 403, 409, 503}
            assert await plugin.ready(tip) == (True, "")
            assert (0, 9, "COPY_SEGMENT_STARTED") in node.rows(tip)

    run_virtually(main)

"""The tier's answers to the listener, over a real view, real segments and the data plane."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from kafka_formats.errors import RetryLater
from kafka_formats.leader_epoch_checkpoint import (
    EpochEntry,
)
from kafka_listener.reading.fetch_target import Prefer
from kafka_listener.reading.read_port import (
    AbortedFrom,
    BrokerLogEnds,
    EpochEnd,
    FoundOffset,
    GoToBroker,
    LostOffsets,
    NotAvailable,
    OutOfRange,
    TierEnds,
    TierPart,
)
from rlm.leadership.leadership import Leads
from rlmm.records import control_records as control
from tests.kafka_listener.reading.tier_client import (
    LEADER,
    MAX,
    Client,
    Log,
    stored,
    with_node,
)
from tests.rlm.broker_files import ReplicaWriter, write_checkpoint, write_log_dir
from tests.rlm.data_plane.consumers import franz, java
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.kafka_logs import TIMESTAMP_MS, KafkaLog, new_log_dir
from tests.rlm.one_node import Node, new_world
from tests.rlm.virtual_time import run_virtually


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, 30, end=35)
    return log


@pytest.mark.parametrize("bytes_max", [1, 200, MAX])
def test_a_scan_gets_every_byte_up_to_the_border(
    tmp_path: Path, orders: KafkaLog, bytes_max: int
) -> None:
    async def check(node: Node) -> None:
        client = Client(node, orders.partition)
        found = await client.scan(0, bytes_max=bytes_max)
        assert found == (stored(orders, 0, 10, 20), GoToBroker(30))
        broker_first = Client(node, orders.partition, Prefer.BROKER)
        found = await broker_first.scan(0, bytes_max=bytes_max)
        assert found == (stored(orders, 0, 10), GoToBroker(20))
        # No leader answers this client; what another one was told stands.
        data, end = await client.scan(0, None, bytes_max)
        assert data == stored(orders, 0, 10, 20)
        assert isinstance(end, NotAvailable)
        heard_nothing, _ = await Client(node, orders.partition).fetch(0, None)
        assert isinstance(heard_nothing, NotAvailable)
        assert client.port.ends(orders.partition) == TierEnds(0, 30, 0)
        answer, _ = await client.fetch(7, bytes_max=bytes_max)
        assert isinstance(answer, TierPart)
        assert (answer.log_start_offset, answer.aborted) == (0, ())

    with_node(tmp_path, orders, check)


def test_a_partition_that_is_not_tiered_is_the_leaders(tmp_path: Path, orders: KafkaLog) -> None:
    async def check(node: Node) -> None:
        other = replace(orders.partition, topic="other")
        client = Client(node, other)
        assert client.port.ends(other) is None
        assert (await client.fetch(5))[0] == GoToBroker(5)
        assert isinstance((await client.fetch(5, None))[0], NotAvailable)
        assert await client.port.list_offsets(other, -2, LEADER) is None
        assert client.port.epoch_end(other, 0, LEADER) is None

    with_node(tmp_path, orders, check)


def test_a_view_that_may_lag_says_nothing_of_what_is_not_there(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(node: Node) -> None:
        asked: list[float] = []

        async def catch_up(*, deadline_s: float) -> None:
            asked.append(deadline_s)
            await asyncio.sleep(1)
            raise RetryLater("no leader confirms it")

        monkeypatch.setattr(node.metadata, "catch_up", catch_up)
        other = replace(orders.partition, topic="other")
        client = Client(node, other)
        answers = await asyncio.gather(*(client.fetch(5) for _ in range(20)))
        assert all(isinstance(answer, NotAvailable) for answer, _ in answers)
        assert len(asked) == 2, "whoever came later shares the second one"
        with pytest.raises(RetryLater):
            await client.port.list_offsets(other, -2, LEADER)
        tiered = Client(node, orders.partition)
        assert (await tiered.scan(0))[0] == stored(orders, 0, 10, 20)

    with_node(tmp_path, orders, check)


def test_a_time_between_the_tier_and_the_leaders_disk_is_not_answered_from_that_disk(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """This node's view may lag, or offsets are gone and not recorded yet."""

    async def check(node: Node) -> None:
        client = Client(node, orders.partition)
        beyond = BrokerLogEnds(0, 50, 65, 65)
        with pytest.raises(RetryLater):
            await client.port.list_offsets(orders.partition, TIMESTAMP_MS + 40, beyond)
        found = await client.port.list_offsets(orders.partition, TIMESTAMP_MS + 12, beyond)
        assert found is not None
        assert found.offset == 12

    with_node(tmp_path, orders, check)


def test_a_recorded_lost_range_is_told_and_the_next_batch_is_served(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def check(node: Node) -> None:
        orders.write(30, 40, 50, 60, end=65)
        for base in (0, 10, 20, 30, 40):
            orders.delete_segment(base)
        await node.remote_log.run_once()
        leader = BrokerLogEnds(0, 60, 65, 65)
        client = Client(node, orders.partition)
        data, lost = await client.scan(5, leader)
        assert data[-len(orders.log_bytes(50)) :] != orders.log_bytes(50)
        assert isinstance(lost, LostOffsets)
        assert (lost.start, lost.end, lost.next_offset) == (30, 49, 50)
        behind = await client.scan(lost.next_offset, leader)
        assert behind == (orders.log_bytes(50), GoToBroker(60))
        has_it = replace(leader, local_log_start_offset=30)
        assert (await client.fetch(35, has_it))[0] == GoToBroker(35)

    with_node(tmp_path, orders, check)


def test_a_diverged_tail_is_not_served_before_or_after_the_claim(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(data_plane=True) as node:
            await node.remote_log.run_once()
            # Unclean election: from 15 on another log.
            for base in (10, 20, 30):
                orders.delete_segment(base)
            orders.write(10, 15, end=15)
            orders.write(15, 22, 28, end=29, epoch=1)
            orders.set_epochs((0, 0), (1, 15))
            leader = BrokerLogEnds(1, 10, 29, 29)
            log = Log((EpochEntry(0, 0), EpochEntry(1, 15)), start=5, end=29)
            client = Client(node, orders.partition, log=log)
            assert await client.scan(0, leader) == (stored(orders, 0), GoToBroker(10))
            assert await client.port.list_offsets(
                orders.partition, TIMESTAMP_MS + 16, leader
            ) is None  # fmt: skip
            silent = replace(leader, is_reachable=False)
            assert isinstance((await client.scan(12, silent))[1], NotAvailable)
        async with world.boot(data_plane=True) as node:
            await node.remote_log.run_once()
            client = Client(node, orders.partition)
            data, _ = await client.scan(0, leader)
            assert data == stored(orders, 0, 10, 15, 22)

    run_virtually(main)


def test_what_a_newer_leader_replaced_and_dropped_is_not_served_before_its_claim(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """Its own word tells how far its log is the tier's, while its log reaches so far back."""

    async def check(node: Node) -> None:
        log = Log((EpochEntry(0, 0), EpochEntry(3, 15)), start=12, end=60)
        leader = BrokerLogEnds(3, 12, 60, 60)
        dropped = replace(leader, local_log_start_offset=40)
        client = Client(node, orders.partition, log=log)
        assert isinstance(
            (await client.fetch(0, replace(leader, is_reachable=False)))[0], NotAvailable
        )
        assert log.asked == 0
        answers = await asyncio.gather(*(client.fetch(5, leader) for _ in range(5)))
        assert all(data and stored(orders, 0).endswith(data) for _, data in answers)
        assert log.asked == 1
        assert client.port.epoch_end(orders.partition, -1, dropped) is None
        log.start = 40
        # What it told stays true, also while it does not answer.
        for told in (dropped, replace(dropped, is_reachable=False)):
            data, end = await client.scan(0, told, bytes_max=1)
            assert data == stored(orders, 0, 10)[: len(data)]
            assert isinstance(end, NotAvailable)
            assert (await client.fetch(14, told))[1]
            assert isinstance((await client.fetch(15, told))[0], NotAvailable)
        with pytest.raises(RetryLater):
            await client.port.list_offsets(orders.partition, TIMESTAMP_MS + 16, dropped)
        found = await client.port.list_offsets(orders.partition, TIMESTAMP_MS + 14, dropped)
        assert found is not None
        assert found.offset == 14
        # A word of an older leader does not count any more.
        assert isinstance((await client.fetch(16, LEADER))[0], NotAvailable)
        committed = Client(node, orders.partition, log=replace(log, start=12), committed=True)
        assert isinstance((await committed.fetch(5, leader))[0], NotAvailable)
        # Asked too late, it can't tell any more.
        late = Client(node, orders.partition, log=log)
        assert isinstance((await late.fetch(5, dropped))[0], NotAvailable)

    with_node(tmp_path, orders, check)


def test_a_lost_range_above_all_that_is_copied_is_told(tmp_path: Path, orders: KafkaLog) -> None:
    async def check(node: Node) -> None:
        state = node.metadata.partition_state(orders.partition)
        assert state is not None
        assert state.claim is not None
        for start, end, why in ((30, 39, "one"), (40, 49, "another")):
            await node.metadata.record_lost_range(
                control.LostRange(orders.partition, state.claim.token, start, end, why)
            )
        leader = BrokerLogEnds(0, 50, 65, 65)
        client = Client(node, orders.partition)
        assert client.port.ends(orders.partition) == TierEnds(0, 50, 0)
        assert await client.scan(20, leader) == (orders.log_bytes(20), LostOffsets(30, 49, "one"))
        assert (await client.fetch(50, leader))[0] == GoToBroker(50)
        found = await client.port.list_offsets(orders.partition, -5, leader)
        assert found == FoundOffset(-1, 29, 0)

    with_node(tmp_path, orders, check)


def test_records_that_are_held_and_not_copied_yet_are_waited_for(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """A new partition whose local retention was faster than its first copy."""

    async def main() -> None:
        nothing_stable = FakeBroker({("orders", 0): Leads(0, 5)})
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(data_plane=True, broker=nothing_stable) as node:
            await node.remote_log.run_once()
            assert node.finished(orders.partition) == []
            client = Client(node, orders.partition)
            port, tip = client.port, orders.partition
            assert await port.list_offsets(tip, -2, LEADER) == FoundOffset(-1, 0, 0)
            assert isinstance((await client.fetch(0))[0], NotAvailable)
            assert isinstance((await client.fetch(19))[0], NotAvailable)
            assert (await client.fetch(20))[0] == GoToBroker(20)
            with pytest.raises(RetryLater):
                await port.list_offsets(tip, TIMESTAMP_MS + 5, LEADER)
            assert await port.list_offsets(tip, -5, LEADER) is None
            has_all = replace(LEADER, local_log_start_offset=0)
            assert await port.list_offsets(tip, -2, has_all) is None
            assert (await client.fetch(0, has_all))[0] == GoToBroker(0)

            state = node.metadata.partition_state(tip)
            assert state is not None
            assert state.claim is not None
            gone = control.LostRange(tip, state.claim.token, 0, 9, "the hold was full")
            await node.metadata.record_lost_range(gone)
            assert await port.list_offsets(tip, -2, LEADER) == FoundOffset(-1, 10, 0)
            assert (await client.fetch(5))[0] == LostOffsets(0, 9, "the hold was full")
            gone = replace(gone, start=10, end=19)
            await node.metadata.record_lost_range(gone)
            assert await port.list_offsets(tip, -2, LEADER) is None, "the leader has the rest"

    run_virtually(main)


def test_offsets_by_time_and_by_special(tmp_path: Path, orders: KafkaLog) -> None:
    async def check(node: Node) -> None:
        client = Client(node, orders.partition)

        async def offset_at(
            timestamp: int, broker: BrokerLogEnds | None = LEADER
        ) -> FoundOffset | None:
            return await client.port.list_offsets(orders.partition, timestamp, broker)

        assert await offset_at(-2) == FoundOffset(-1, 0, 0)
        assert await offset_at(-5) == FoundOffset(-1, 29, 0)
        assert await offset_at(-3) == FoundOffset(TIMESTAMP_MS + 29, 29, 0)
        assert await offset_at(0) == FoundOffset(TIMESTAMP_MS, 0, 0)
        assert await offset_at(TIMESTAMP_MS + 13) == FoundOffset(TIMESTAMP_MS + 13, 13, 0)
        for leaders in (-1, -4, -6, TIMESTAMP_MS + 30):
            assert await offset_at(leaders) is None
        has_all = replace(LEADER, local_log_start_offset=0)
        for timestamp in (-2, -3, 0):
            assert await offset_at(timestamp, has_all) is None
        assert await offset_at(-5, has_all) == FoundOffset(-1, 29, 0)
        client.log.epochs, client.log.end = (EpochEntry(0, 0), EpochEntry(1, 35)), 35
        newer = replace(LEADER, leader_epoch=1)
        with pytest.raises(RetryLater):
            await offset_at(-3, newer)
        assert await offset_at(TIMESTAMP_MS + 13, newer) is not None
        assert await offset_at(TIMESTAMP_MS + 25, newer) is None

    with_node(tmp_path, orders, check)


def test_ends_of_epochs_below_the_leaders_cache(tmp_path: Path) -> None:
    orders = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    orders.write(0, end=10)
    orders.write(10, end=20, epoch=2)
    orders.write(20, 30, end=35, epoch=5)
    orders.set_epochs((0, 0), (2, 10), (5, 20))

    async def check(node: Node) -> None:
        end = partial(Client(node, orders.partition).port.epoch_end, orders.partition)
        assert end(0, LEADER) == EpochEnd(0, 10)
        assert end(1, LEADER) == EpochEnd(0, 10)
        assert end(2, LEADER) == end(4, LEADER) == EpochEnd(2, 20)
        assert end(2, replace(LEADER, local_log_start_offset=19)) is None
        assert end(5, LEADER) is end(6, LEADER) is end(-1, LEADER) is None

    with_node(tmp_path, orders, check)


def test_retention_in_the_middle_of_a_scan(tmp_path: Path, orders: KafkaLog) -> None:
    async def check(node: Node) -> None:
        client = Client(node, orders.partition)
        state = node.metadata.partition_state(orders.partition)
        assert state is not None
        assert state.claim is not None
        await node.metadata.record_log_start(
            control.LogStart(orders.partition, state.claim.token, 0, 15)
        )
        assert (await client.fetch(12))[0] == OutOfRange(15)
        assert client.port.ends(orders.partition) == TierEnds(15, 30, 0)
        found = await client.port.list_offsets(orders.partition, 0, LEADER)
        assert found == FoundOffset(TIMESTAMP_MS + 15, 15, 0)
        answer, _ = await client.fetch(15)
        assert isinstance(answer, TierPart)
        assert answer.log_start_offset == 15

    with_node(tmp_path, orders, check)


def test_damage_and_a_store_that_is_gone_make_a_client_ask_again(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def check(node: Node) -> None:
        client = Client(node, orders.partition)
        (key,) = [key for key in await node.keys() if "00000010-" in key and key.endswith(".log")]
        await node.store.damage(key)
        data, end = await client.scan(0)
        assert data == stored(orders, 0)
        assert isinstance(end, NotAvailable)
        assert "CRC32C" in end.why
        assert len(node.parts.reads.seen.seen) == 1
        assert (await client.scan(20))[0] == stored(orders, 20)

    with_node(tmp_path, orders, check)


def test_committed_records_up_to_the_tiers_end_with_the_leaders_help(tmp_path: Path) -> None:
    replica = ReplicaWriter(write_log_dir(tmp_path / "kafka"))
    replica.append(1)  # 0
    replica.append(2, producer_id=1, transactional=True)  # 1, 2: aborted at 6
    replica.append(1, producer_id=2, transactional=True)  # 3: committed at 7
    replica.append(1)  # 4
    replica.roll()
    replica.append(1)  # 5: all up to here is tiered
    replica.roll()
    replica.end_transaction(1, commit=False)
    replica.end_transaction(2, commit=True)
    replica.append(1)
    replica.flush()
    marks = {("orders", 0): replica.next_offset}
    write_checkpoint(replica.log_dir, "replication-offset-checkpoint", marks)

    async def main() -> None:
        broker = FakeBroker({("orders", 0): Leads(0, 9)})
        world = new_world(tmp_path, (replica.log_dir,))
        async with world.boot(data_plane=True, broker=broker) as node:
            await node.remote_log.run_once()
            leader = BrokerLogEnds(0, 5, 9, 9)
            client = Client(node, replica.partition, committed=True)
            assert client.port.ends(replica.partition) == TierEnds(0, 6, 0)
            answer, data = await client.fetch(0, leader)
            assert isinstance(answer, TierPart)
            assert (java(data, answer.aborted), answer.next_offset) == ([0], 1)
            answer, _ = await client.fetch(1, leader)
            assert isinstance(answer, NotAvailable)
            assert client.leader.asked == [(6, 0), (6, 0)]
            assert (await client.fetch(1, replace(leader, local_log_start_offset=0)))[0] == (
                GoToBroker(1)
            )
            client.leader.aborted = (AbortedFrom(1, 1),)
            answer, data = await client.fetch(0, leader)
            assert isinstance(answer, TierPart)
            assert answer.aborted == (AbortedFrom(1, 1),)
            for consumer in (java, franz):
                assert consumer(data, answer.aborted) == [0, 3, 4]
            asked = len(client.leader.asked)
            not_stable = replace(leader, last_stable_offset=6)
            assert isinstance((await client.fetch(1, not_stable))[0], NotAvailable)
            assert isinstance((await client.fetch(1, None))[0], NotAvailable)
            answer, _ = await client.fetch(5, leader)
            assert isinstance(answer, TierPart)
            assert len(client.leader.asked) == asked, "nobody is asked what can't matter"

    run_virtually(main)

"""A broker that tiers by a node which does not see its disk: claims by what the broker tells."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.leader_epoch_checkpoint import EpochEntry, Epochs
from rlm.delegated.copied_offsets import CopiedOffsets
from rlm.leadership.leadership import Leads, LocalLogStart, NoAnswer, NotLeading
from rlmm.partition_state import Mode
from rlmm.records.control_records import LogStart, PartitionModeChange
from rlmm.segment import SegmentState
from sim.tier import plugin_bodies
from tests.rlm.delegated.delegating import NO_TOPICS, TIERED, announcement
from tests.rlm.delegated.plugin_client import PluginClient, client_of, refused, segment
from tests.rlm.delegated.test_copied_offsets import no_pause
from tests.rlm.one_node import Node, new_world
from tests.rlm.planner_facts import PARTITION as TIP
from tests.rlm.planner_facts import uuid
from tests.rlm.telling_broker import TellingBroker
from tests.rlm.virtual_time import run_virtually

NAME = (TIP.topic, TIP.partition)
EPOCHS = (EpochEntry(0, 0), EpochEntry(2, 10))


def broker_of(epochs: Epochs = EPOCHS, *, local_start: int = 0) -> TellingBroker:
    return TellingBroker(
        {NAME: Leads(epochs[-1].epoch, 25)},
        TIERED,
        LocalLogStart(local_start, epochs[-1].epoch),
        {TIP.topic: TIP.topic_id},
        epochs=epochs,
    )


@asynccontextmanager
async def far(tmp_path: Path, broker: TellingBroker) -> AsyncIterator[tuple[Node, PluginClient]]:
    """A running node without log directories; nothing is announced yet."""
    async with new_world(tmp_path, ()).boot(broker=broker, topics=NO_TOPICS) as node:
        await node.remote_log.start()
        plugin = client_of(node)
        async with plugin.http:
            yield node, plugin
        await node.remote_log.close()


def test_an_announced_leader_is_claimed_by_what_the_broker_tells(tmp_path: Path) -> None:
    async def main() -> None:
        async with far(tmp_path, broker_of()) as (node, plugin):
            await plugin.announce(TIP)
            await asyncio.sleep(1)
            assert await plugin.ready(TIP) == (True, "")
            state = node.metadata.partition_state(TIP)
            assert state is not None
            assert (state.mode, state.lineage) == (Mode.DELEGATED, EPOCHS)
            row = segment(TIP, 1, 0, 9)
            await plugin.add(row)
            await plugin.update(row, SegmentState.COPY_SEGMENT_FINISHED, b"custom")
            assert await plugin.look_up(TIP, 0, 5) is not None
            assert await plugin.look_up(TIP, 2, 12) is None
            assert await plugin.highest(TIP, 0) == 9

    run_virtually(main)


def test_a_broker_that_does_not_answer_keeps_its_claim_and_one_that_never_did_gets_none(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        broker = broker_of()
        word = broker.words[NAME]
        broker.words[NAME] = NoAnswer("down")
        async with far(tmp_path, broker) as (node, plugin):
            await plugin.announce(TIP)
            await asyncio.sleep(20)
            ready, why = await plugin.ready(TIP)
            assert not ready
            assert "has not reported its leader epochs" in why
            assert (await refused(plugin.page(TIP))).kind == "retry_later"
            broker.words[NAME] = word
            await asyncio.sleep(20)
            assert (await plugin.ready(TIP))[0]
            state = node.metadata.partition_state(TIP)
            broker.words[NAME] = NoAnswer("down")
            broker.ids[TIP.topic] = NoAnswer("down")
            await asyncio.sleep(20)
            assert not (await plugin.ready(TIP))[0]
            assert node.metadata.partition_state(TIP) == state
            broker.words[NAME], broker.ids[TIP.topic] = word, TIP.topic_id
            await asyncio.sleep(20)
            assert (await plugin.ready(TIP))[0]
            assert node.metadata.partition_state(TIP) == state

    run_virtually(main)


def test_another_topic_of_that_name_is_never_claimed(tmp_path: Path) -> None:
    async def main() -> None:
        broker = broker_of()
        broker.ids[TIP.topic] = uuid(99)
        async with far(tmp_path, broker) as (node, plugin):
            await plugin.announce(TIP)
            await asyncio.sleep(30)
            assert not (await plugin.ready(TIP))[0]
            assert node.metadata.partition_state(TIP) is None

    run_virtually(main)


def test_a_later_leadership_is_claimed_with_its_epochs_and_a_lost_one_is_let_go(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        broker = broker_of()
        async with far(tmp_path, broker) as (node, plugin):
            await plugin.announce(TIP)
            await asyncio.sleep(20)
            broker.words[NAME] = NotLeading()
            await asyncio.sleep(20)
            assert not (await plugin.ready(TIP))[0]
            broker.epochs = (*EPOCHS, EpochEntry(5, 22))
            broker.words[NAME] = Leads(5, 25)
            await asyncio.sleep(20)
            assert (await plugin.ready(TIP))[0]
            state = node.metadata.partition_state(TIP)
            assert state is not None
            assert state.lineage == broker.epochs

    run_virtually(main)


def test_nothing_is_read_of_a_segment_before_its_new_leader_told_its_epochs(
    tmp_path: Path,
) -> None:
    """[LOSS-9] The first look behind its announcement gets no answer."""

    async def main() -> None:
        broker = broker_of()
        async with far(tmp_path, broker) as (_, plugin):
            await plugin.announce(TIP)
            await asyncio.sleep(20)
            later = replace(segment(TIP, 2, 10, 19), leader_epochs=((2, 10),))
            for row in (segment(TIP, 1, 0, 9), later):
                await plugin.add(row)
                await plugin.update(row, SegmentState.COPY_SEGMENT_FINISHED, b"custom")
            assert await plugin.look_up(TIP, 2, 12) is not None
            broker.epochs = (*EPOCHS, EpochEntry(3, 15))  # by an unclean election
            broker.words[NAME] = NoAnswer("down")
            plugin.seq += 1
            await plugin.announce(TIP)
            await asyncio.sleep(20)
            told = await refused(plugin.look_up(TIP, 2, 12))
            assert told.kind == "retry_later"
            assert "has not looked at its broker since" in told.detail
            broker.words[NAME] = Leads(3, 25)
            await asyncio.sleep(20)
            assert await plugin.ready(TIP) == (True, "")
            broker.words[NAME] = NoAnswer("down")  # what it told holds until it announces anew
            await asyncio.sleep(20)
            assert await plugin.look_up(TIP, 0, 5) is not None

    run_virtually(main)


@pytest.mark.parametrize("starts_at", [0, 10])
def test_a_broker_whose_log_begins_above_the_tier_never_gets_it(
    tmp_path: Path, starts_at: int
) -> None:
    """[LOSS-8] It would delete the tier's older part as lying below its log start. One whose disk
    alone begins above goes on.
    """

    async def main() -> None:
        broker = broker_of()
        async with far(tmp_path, broker) as (node, plugin):
            await plugin.announce(TIP)
            await asyncio.sleep(20)
            row = segment(TIP, 1, 0, 9)
            await plugin.add(row)
            await plugin.update(row, SegmentState.COPY_SEGMENT_FINISHED, b"custom")
            claimed = node.metadata.partition_state(TIP)
            assert claimed is not None
            assert claimed.claim is not None
            as_if_a_node_copied = LogStart(TIP, claimed.claim.token, 0, 0)
            await node.metadata.record_log_start(as_if_a_node_copied)
            for mode in (Mode.PAUSED, Mode.DELEGATED):
                state = node.metadata.partition_state(TIP)
                assert state is not None
                change = PartitionModeChange(TIP, mode, state.mode_offset)
                await node.metadata.set_partition_mode(change)
            broker.local_start = LocalLogStart(10, 2)
            kept = EPOCHS if starts_at == 0 else EPOCHS[1:]
            broker.epochs = (*kept, EpochEntry(3, 24))
            broker.words[NAME] = Leads(3, 25)
            await asyncio.sleep(20)
            ready, why = await plugin.ready(TIP)
            assert ready == (starts_at == 0)
            assert ready or "the tier has it from offset 0 on, the broker from 10 on" in why

    run_virtually(main)


def test_a_deleted_topics_segments_are_listed_only_once_the_broker_does_not_know_it(
    tmp_path: Path,
) -> None:
    """[LOSS-2] An unready list may lack segments; a broker that deletes asks once, and for good."""

    async def main() -> None:
        broker = broker_of()
        async with far(tmp_path, broker) as (_, plugin):
            await plugin.announce(TIP)
            await asyncio.sleep(20)
            row = segment(TIP, 1, 0, 9)
            await plugin.add(row)
            broker.words[NAME] = NoAnswer("unknown_topic_or_partition")
            await asyncio.sleep(20)
            assert (await refused(plugin.page(TIP))).kind == "retry_later"
            broker.unknown_topics = True
            rows = (await plugin.page(TIP))[1]
            assert rows is not None
            assert [each.segment_id for each in rows] == [row.segment_id]

    run_virtually(main)


def test_a_follower_takes_for_copied_what_its_leader_has_in_the_tier(tmp_path: Path) -> None:
    """[LOSS-3] It deletes that from its disk: the leader's copy would be the only one."""

    async def main() -> None:
        broker = broker_of()
        async with far(tmp_path, broker) as (_, plugin):
            await plugin.announce(TIP)
            await asyncio.sleep(20)
            rows = [segment(TIP, 1, 0, 4), segment(TIP, 2, 5, 7), segment(TIP, 3, 8, 9)]
            for row in rows:
                await plugin.add(row)
                await plugin.update(row, SegmentState.COPY_SEGMENT_FINISHED, b"custom")
            await plugin.update(rows[1], SegmentState.DELETE_SEGMENT_STARTED)
            assert await plugin.highest(TIP, 0) == 4
            broker.words[NAME] = NotLeading()
            follows = replace(announcement(seq=2), followers=(TIP,))
            plugin.seq = 2
            await plugin.call("announce", plugin_bodies.announce(follows))
            await asyncio.sleep(20)
            assert await plugin.highest(TIP, 0) == 4

    run_virtually(main)


@pytest.mark.parametrize("asked_before", [True, False])
def test_a_hole_stops_a_follower_no_longer_than_what_is_below_it_is_there(
    tmp_path: Path, asked_before: bool
) -> None:
    """DeleteRecords past what was copied; what it took of the tier goes by the same leader."""

    async def main() -> None:
        broker = broker_of()
        async with far(tmp_path, broker) as (node, plugin):
            await plugin.announce(TIP)
            await asyncio.sleep(20)
            first, last = segment(TIP, 1, 0, 4), segment(TIP, 2, 8, 9)
            for row in (first, last):
                if row is last:
                    broker.local_start = LocalLogStart(8, 0)
                    await asyncio.sleep(20)
                await plugin.add(row)
                await plugin.update(row, SegmentState.COPY_SEGMENT_FINISHED, b"custom")
            copied = CopiedOffsets(node.metadata, no_pause)  # of a follower's node
            if asked_before:
                assert await copied.highest(TIP, 0, None) in (4, 9)
            await plugin.update(first, SegmentState.DELETE_SEGMENT_STARTED)
            await asyncio.sleep(3_600)
            assert await copied.highest(TIP, 0, None) == 9

    run_virtually(main)

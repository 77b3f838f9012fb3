"""Damaged segments are copied anew from a whole source, read back, and only then retired."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats import offset_checkpoint
from kafka_formats.errors import Conflict, CorruptData, InvalidRequest, NotFound
from kafka_formats.kafka_uuid import Uuid
from rlm.kill_switches import Switch
from rlm.node_problem import ProblemArea
from rlm.object_keys import SegmentKeys, segment_keys
from rlm.read_request import RecordsRequest
from rlm.repair_run import DamagedSegmentRepair, Outcome, RepairRequest, RepairRun, RepairState
from rlm.scrub_results import DamagedSegment, PartitionScrub, ScrubFinding
from rlmm.partition_state import Mode, TopicPolicy
from rlmm.records import PartitionModeChange, TopicPolicyChange
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState
from rsm_backends.memory import MemoryStore
from tests.rlm.held_segments import ROOM, retention
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import LIMITS, PREFIX, Node, Steps, new_world
from tests.rlm.virtual_time import run_virtually

GONE_AFTER_S = LIMITS.delete_delay_s + LIMITS.upload_margin_s + 1.0
APPLY = RepairRequest("orders", apply=True)
LOOK = RepairRequest("orders")
EVERYTHING = RecordsRequest(0, 1 << 30)


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    """Four segments from 0 to 34; the last one is active."""
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, 30, end=35)
    return log


@asynccontextmanager
async def copied(
    tmp_path: Path, orders: KafkaLog, *, versioned: bool = False
) -> AsyncIterator[Node]:
    """A node that has copied all there is to copy, and goes on holding its claim."""
    world = new_world(tmp_path, (orders.log_dir,), versioned=versioned)
    async with world.boot(data_plane=True) as node:
        await node.remote_log.run_once()
        yield node


def row_at(node: Node, orders: KafkaLog, start: int) -> RemoteLogSegmentMetadata:
    """The finished segment that begins there."""
    (found,) = [
        row
        for row in node.metadata.list_remote_log_segments(orders.partition)
        if row.start_offset == start and row.state is SegmentState.COPY_SEGMENT_FINISHED
    ]
    return found


def keys_of(row: RemoteLogSegmentMetadata) -> SegmentKeys:
    return segment_keys(PREFIX, row.segment_id, row.start_offset)


async def repaired(node: Node, request: RepairRequest = APPLY) -> RepairRun:
    """The run, when it has ended."""
    run = node.repairs.start(request, "an admin")
    while run.state is RepairState.RUNNING:
        await asyncio.sleep(1)
    return run


async def only(node: Node, request: RepairRequest = APPLY) -> DamagedSegmentRepair:
    run = await repaired(node, request)
    assert (run.state, run.text) == (RepairState.FINISHED, "")
    (told,) = run.segments
    return told


async def everything(node: Node, orders: KafkaLog) -> bytes:
    """What a reader gets, from the first offset on."""
    pieces = node.remote_log.records(orders.partition, EVERYTHING)
    return b"".join([piece async for piece in pieces])


def whole(orders: KafkaLog) -> bytes:
    return b"".join(map(orders.log_bytes, (0, 10, 20)))


async def assert_tidy(node: Node) -> None:
    """Nothing is left of what was damaged."""
    await asyncio.sleep(GONE_AFTER_S)
    await node.assert_quiesced()


async def delete(store: MemoryStore, *keys: str) -> None:
    """Behind everybody's back."""
    await MemoryStore.delete_many(store, keys)


@pytest.mark.parametrize("suffix", ["log", "indexes", "manifest"])
@pytest.mark.parametrize("gone", [False, True], ids=["damaged", "gone"])
def test_a_damaged_segment_is_copied_anew_from_the_brokers_own(
    tmp_path: Path, orders: KafkaLog, suffix: str, gone: bool
) -> None:
    async def main() -> None:
        async with copied(tmp_path, orders) as node:
            old = row_at(node, orders, 10)
            key = getattr(keys_of(old), suffix)
            await (delete(node.store, key) if gone else node.store.damage(key))
            told = await only(node)
            assert told.outcome is Outcome.REPAIRED, told
            assert told.source == (
                "the broker's segments" if suffix == "log" else "the segment's own objects"
            )
            new = row_at(node, orders, 10)
            assert new.segment_id.id == told.new_segment != old.segment_id.id
            assert (new.max_timestamp_ms, new.leader_epochs, new.size_bytes) == (
                old.max_timestamp_ms, old.leader_epochs, old.size_bytes,
            )  # fmt: skip
            assert await everything(node, orders) == whole(orders)
            await assert_tidy(node)
            assert node.repairs.repaired == 1
            assert (await repaired(node)).segments == []

    run_virtually(main)


def test_a_look_changes_nothing_and_says_what_would_be_done(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with copied(tmp_path, orders) as node:
            old = row_at(node, orders, 10)
            await node.store.damage(keys_of(old).log)
            proposed = len(node.proposed)
            told = await only(node, LOOK)
            assert (told.outcome, told.source) == (Outcome.WOULD, "the broker's segments")
            assert told.wrong.startswith(".log has the CRC32C ")
            assert told.text == "it serves 10 to 19"
            assert len(node.proposed) == proposed
            assert not (tmp_path / "repair").exists()

    run_virtually(main)


def test_segments_that_begin_and_end_elsewhere_have_the_same_batches(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """Another replica, which leads now, rolled at other offsets."""

    async def main() -> None:
        async with copied(tmp_path, orders) as node:
            await node.store.damage(keys_of(row_at(node, orders, 10)).log)
            for base in (0, 10, 20, 30):
                orders.delete_segment(base)
            orders.write(0, 5, 13, 17, end=35)
            async with asyncio.timeout(60):
                await node.remote_log.start()
                await asyncio.sleep(30)
            told = await only(node)
            assert (told.outcome, told.source) == (Outcome.REPAIRED, "the broker's segments")
            await assert_tidy(node)

    run_virtually(main)


def test_what_the_broker_has_not_any_more_may_be_held(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        steps = Steps()
        async with world.boot(hook=steps, data_plane=True, hold=ROOM) as node:
            await node.remote_log.start()
            await asyncio.sleep(30)
            old = row_at(node, orders, 10)
            await node.store.damage(keys_of(old).log)
            # What is copied is let go; a unit that is there again is found by the next look.
            told = await only(node, LOOK)
            assert told.outcome is Outcome.WOULD
            retention(orders, 0, 10, start=20)
            await asyncio.sleep(30)
            told = await only(node)
            assert told.outcome is Outcome.UNREPAIRABLE
            assert told.text.startswith("nothing has a whole copy: the broker's segments: ")
            assert node.repairs.unrepairable == 1
            (problem,) = node.repairs.problems()
            assert problem.area is ProblemArea.DAMAGE
            assert "without a whole copy anywhere" in problem.text
            assert row_at(node, orders, 10) == old, "it stays as it is"

    run_virtually(main)


@pytest.mark.parametrize("gone", [False, True], ids=["damaged", "gone"])
def test_an_earlier_version_of_the_object_is_a_source(
    tmp_path: Path, orders: KafkaLog, gone: bool
) -> None:
    async def main() -> None:
        async with copied(tmp_path, orders, versioned=True) as node:
            wanted = whole(orders)
            keys = keys_of(row_at(node, orders, 10))
            for key in keys.all():
                await (delete(node.store, key) if gone else node.store.damage(key))
            retention(orders, 0, 10, start=20)
            await node.remote_log.start()
            await asyncio.sleep(30)
            told = await only(node)
            assert told.outcome is Outcome.REPAIRED, told
            assert told.source.startswith("version ")
            assert await everything(node, orders) == wanted
            await assert_tidy(node)

    run_virtually(main)


def test_a_local_segment_that_is_not_the_same_bytes_is_no_source(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with copied(tmp_path, orders) as node:
            old = row_at(node, orders, 10)
            await node.store.damage(keys_of(old).log)
            orders.damage(10)
            told = await only(node)
            assert told.outcome is Outcome.UNREPAIRABLE
            assert "the broker's segments: CRC32C " in told.text
            assert row_at(node, orders, 10) == old

    run_virtually(main)


def test_nothing_is_repaired_while_deletes_are_frozen(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with copied(tmp_path, orders) as node:
            await node.store.damage(keys_of(row_at(node, orders, 10)).log)
            proposed = len(node.proposed)
            for switch, why in (
                (Switch.DELETING, "nothing is deleted now: "),
                (Switch.COPYING, ""),
            ):
                await node.remote_log.switches.pause(switch, by="an admin", why="a look first")
                told = await only(node)
                assert told.outcome is Outcome.WOULD
                assert told.text.startswith(why)
                assert "a look first" in told.text
                await node.remote_log.switches.resume(switch, by="an admin")
            before = node.metadata.topic_policy("orders")
            await node.metadata.set_topic_policy(
                TopicPolicyChange("orders", TopicPolicy(delete_paused=True), before.offset)
            )
            told = await only(node)
            assert "deleting of orders is paused by its policy" in told.text
            assert len(node.proposed) == proposed
            node.store.clock_offset_ms = 60_000
            await node.remote_log.start()
            await asyncio.sleep(LIMITS.clock_check_interval_s + 10)
            before = node.metadata.topic_policy("orders")
            await node.metadata.set_topic_policy(
                TopicPolicyChange("orders", TopicPolicy(), before.offset)
            )
            told = await only(node)
            assert told.outcome is Outcome.WOULD
            assert "clock" in told.text

    run_virtually(main)


def test_a_partition_that_is_read_only_is_left(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with copied(tmp_path, orders) as node:
            await node.store.damage(keys_of(row_at(node, orders, 10)).log)
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            await node.metadata.set_partition_mode(
                PartitionModeChange(orders.partition, Mode.READ_ONLY, state.mode_offset)
            )
            told = await only(node)
            assert (told.outcome, told.text) == (
                Outcome.LEFT, "the partition is read_only: nothing of it is copied here",
            )  # fmt: skip

    run_virtually(main)


def test_a_head_that_delete_records_took_before_the_first_copy_is_no_hindrance(
    tmp_path: Path,
) -> None:
    """Nobody knows its leader epochs; the lineage may have an earlier leader's there."""
    orders = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    orders.write(0, 10, end=12)

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(data_plane=True) as node:
            await node.remote_log.run_once()
        orders.write(0, 10, 20, 30, end=35)
        orders.set_epochs((0, 15))
        taken = offset_checkpoint.encode({("orders", 0): 15})
        (orders.log_dir / "log-start-offset-checkpoint").write_bytes(taken)
        async with world.boot(data_plane=True) as node:
            await node.remote_log.run_once()
            old = row_at(node, orders, 10)
            assert old.leader_epochs == ((0, 15),)
            await node.store.damage(keys_of(old).log)
            told = await only(node)
            assert told.outcome is Outcome.REPAIRED, told
            assert row_at(node, orders, 10).leader_epochs == old.leader_epochs
            await assert_tidy(node)

    run_virtually(main)


def test_damage_on_the_way_is_no_damage(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with copied(tmp_path, orders) as node:
            run = await repaired(node)
            assert (run.checked, run.segments) == (3, [])
            assert run.checked_bytes == len(whole(orders))

    run_virtually(main)


def test_an_upload_that_cannot_be_read_back_replaces_nothing(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(data_plane=True) as node:
            await node.remote_log.run_once()
        store = world.store

        async def rots(step: str) -> None:
            """Whatever is uploaded from now on is damaged before it is read back."""
            if step == "after put .rsm-manifest" and node.proposed:
                newest = node.proposed[-1]
                await store.damage(segment_keys(PREFIX, newest.segment_id, 10).log)

        async with world.boot(hook=rots, data_plane=True) as node:
            await node.remote_log.run_once()
            old = row_at(node, orders, 10)
            await store.damage(keys_of(old).log)
            told = await only(node)
            assert told.outcome is Outcome.FAILED
            assert "read back after its upload: .log has the CRC32C" in told.text
            assert row_at(node, orders, 10) == old
            await node.remote_log.start()
            await asyncio.sleep(LIMITS.upload_deadline_s + GONE_AFTER_S)
            await node.assert_quiesced()

    run_virtually(main)


def test_what_a_scrub_told_is_looked_at_and_forgotten_once_it_is_mended(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(data_plane=True) as node:
            await node.remote_log.run_once()
            old = row_at(node, orders, 10)
            finding = ScrubFinding("log", 3, None, "CRC32C", "repair it")
            damage = DamagedSegment(old.segment_id.id, 10, 19, (finding,))
            await world.scrubs.add(
                [PartitionScrub(orders.partition, 0, 29, 3, 1, 0, 0, 1, 5, (damage,))]
            )
            request = RepairRequest(from_scrub=True, apply=True)
            run = await repaired(node, request)
            assert (run.checked, run.segments) == (1, [])
            assert world.scrubs.problems(), "the objects are what was uploaded; it says otherwise"
            await node.store.damage(keys_of(old).log)
            assert (await only(node, request)).outcome is Outcome.REPAIRED
            assert world.scrubs.problems() == ()

    run_virtually(main)


def test_what_a_reader_met_is_told_and_mended_by_itself_where_that_is_asked_for(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with copied(tmp_path, orders) as node:
            old = row_at(node, orders, 10)
            await node.store.damage(keys_of(old).log)
            assert await node.repairs.run_automatically() is None, "nobody met it"
            with pytest.raises(CorruptData):
                await everything(node, orders)
            (problem,) = node.repairs.problems()
            assert "reads met 1 damaged segments" in problem.text
            assert "`strandline repair --topic orders --partition 0`" in problem.text
            assert node.repairs.damaged == 1
            run = await node.repairs.run_automatically()
            assert run is not None
            assert [each.outcome for each in run.segments] == [Outcome.REPAIRED]
            assert (node.repairs.problems(), node.repairs.damaged) == ((), 0)
            assert await everything(node, orders) == whole(orders)

    run_virtually(main)


def test_the_automatic_mode_is_bounded_by_the_hour(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with copied(tmp_path, orders) as node:
            node.repairs.limits = replace(node.repairs.limits, per_hour_max=2)
            for start in (0, 10, 20):
                row = row_at(node, orders, start)
                await node.store.damage(keys_of(row).log)
                with pytest.raises(CorruptData):
                    async for _ in node.remote_log.open_log(row.segment_id.id):
                        pass
            run = await node.repairs.run_automatically()
            assert run is not None
            assert (len(run.segments), node.repairs.damaged) == (2, 1)
            assert "repair.per_hour_max" in run.text
            await asyncio.sleep(3601)
            await node.repairs.run_automatically()
            assert node.repairs.damaged == 0

    run_virtually(main)


def test_what_cannot_be_mended_keeps_nothing_else_from_the_automatic_mode(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with copied(tmp_path, orders) as node:
            node.repairs.limits = replace(node.repairs.limits, per_hour_max=1)
            for start in (0, 10, 20):
                row = row_at(node, orders, start)
                await node.store.damage(keys_of(row).log)
                with pytest.raises(CorruptData):
                    async for _ in node.remote_log.open_log(row.segment_id.id):
                        pass
            for start in (0, 10):
                orders.damage(start)
            outcomes = []
            for _ in range(4):
                run = await node.repairs.run_automatically()
                assert run is not None
                outcomes += [each.outcome for each in run.segments]
                await asyncio.sleep(3601)
            assert outcomes.count(Outcome.REPAIRED) == 1
            assert (node.repairs.damaged, node.repairs.unrepairable) == (2, 2)

    run_virtually(main)


def test_what_was_asked_for_has_to_exist_and_one_run_goes_at_a_time(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with copied(tmp_path, orders) as node:
            with pytest.raises(NotFound, match="nothing of payments is in the metadata"):
                node.repairs.start(RepairRequest("payments"), "an admin")
            with pytest.raises(InvalidRequest, match="name one"):
                node.repairs.start(RepairRequest(), "an admin")
            run = node.repairs.start(LOOK, "an admin")
            with pytest.raises(Conflict, match="under way"):
                node.repairs.start(LOOK, "an admin")
            assert node.repairs.run_of(run.id) is run
            with pytest.raises(NotFound):
                node.repairs.run_of(Uuid(bytes(16)))
            await node.repairs.close()
            assert run.state is RepairState.FAILED

    run_virtually(main)


def test_a_partition_of_another_leader_is_asked_for_there(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(data_plane=True) as node:
            await node.remote_log.run_once()
        async with world.boot(data_plane=True, node_id=2) as node:
            run = await repaired(node)
            assert run.elsewhere == ["node 1 leads orders-0: ask there"]

    run_virtually(main)

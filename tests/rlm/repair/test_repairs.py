"""Damaged segments are copied anew from a whole source, read back, and only then retired."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.errors import Conflict, InvalidRequest, NotFound, RetryLater
from kafka_formats.kafka_uuid import Uuid
from rlm.delete.clean_up_tasks import CleanUpTasks
from rlm.format.object_keys import segment_keys
from rlm.node_files.kill_switches import Switch
from rlm.repair.repair_plan import RepairAction, RepairDecision, RepairFacts, plan_repair
from rlm.repair.repair_run import Outcome, RepairRequest, RepairState
from rlm.repair.repairs import RUNS_MAX
from rlm.repair.segment_repair import SegmentRepairs
from rlmm.partition_state import Mode, TopicPolicy
from rlmm.records.control_records import PartitionClaim, PartitionModeChange, TopicPolicyChange
from rlmm.rows.served_ranges import ServedRange
from rlmm.segment import Incarnation, RemoteLogSegmentMetadata
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import LIMITS, PREFIX, Node, new_world
from tests.rlm.planner_facts import epochs, uuid
from tests.rlm.repairing import (
    GONE_AFTER_S,
    LOOK,
    assert_tidy,
    copied,
    delete,
    everything,
    keys_of,
    only,
    repaired,
    row_at,
    scrubbed,
    whole,
)
from tests.rlm.virtual_time import run_virtually


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
            assert told.wrong.startswith(".log has CRC32C ")
            assert told.text == "it serves 10 to 19"
            assert len(node.proposed) == proposed
            assert not (tmp_path / "repair").exists()

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
                await node.parts.given.switches.pause(switch, by="an admin", why="a look first")
                told = await only(node)
                assert told.outcome is Outcome.WOULD
                assert told.text.startswith(why)
                assert "a look first" in told.text
                await node.parts.given.switches.resume(switch, by="an admin")
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
                Outcome.LEFT, "the partition's mode is read_only: nodes do not copy its segments",
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
        orders.set_log_start(15)
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
            assert "read back after its upload: .log has CRC32C" in told.text
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
            await world.scrubs.add([scrubbed(orders, old)])
            request = RepairRequest(from_scrub=True, apply=True)
            run = await repaired(node, request)
            assert (run.checked, run.segments) == (1, [])
            assert world.scrubs.problems(), "the objects are what was uploaded; it says otherwise"
            await node.store.damage(keys_of(old).log)
            assert (await only(node, request)).outcome is Outcome.REPAIRED
            assert world.scrubs.problems() == ()

    run_virtually(main)


def test_what_was_asked_for_has_to_exist_and_one_run_goes_at_a_time(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with copied(tmp_path, orders) as node:
            with pytest.raises(NotFound, match="nothing of payments is in the metadata"):
                node.repairs.start(RepairRequest("payments"), "an admin")
            with pytest.raises(InvalidRequest, match="name a topic"):
                node.repairs.start(RepairRequest(), "an admin")
            unknown = RepairRequest("orders", segment=Uuid(bytes(16)))
            with pytest.raises(NotFound, match="nothing of orders, segment AAAA"):
                node.repairs.start(unknown, "an admin")
            run = node.repairs.start(LOOK, "an admin")
            with pytest.raises(Conflict, match=f"under way, {run.id}"):
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


def test_deletes_that_are_frozen_in_the_middle_leave_both_until_they_go_on(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """And what serves meanwhile is read again before the damaged one goes."""

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        lives: list[Node] = []

        async def freezes(step: str) -> None:
            if step == "before COPY_SEGMENT_FINISHED" and lives:
                await lives.pop().parts.given.switches.pause(Switch.DELETING, by="me", why="look")

        async with world.boot(data_plane=True, hook=freezes) as node:
            await node.remote_log.run_once()
            old = row_at(node, orders, 10)
            await node.store.damage(keys_of(old).log)
            lives.append(node)
            told = await only(node)
            assert told.outcome is Outcome.COPIED
            assert "the damaged one is not retired yet: nothing is deleted now" in told.text
            assert told.new_segment is not None
            new = node.metadata.find_segment(told.new_segment)
            assert new is not None
            assert node.finished(orders.partition).count((10, 19)) == 2
            await node.parts.given.switches.resume(Switch.DELETING, by="me")
            await node.store.damage(keys_of(new).log)
            for segment, outcome in (
                (old, Outcome.LEFT), (new, Outcome.REPAIRED), (old, Outcome.REPAIRED),
            ):  # fmt: skip
                request = RepairRequest("orders", segment=segment.segment_id.id, apply=True)
                told = await only(node, request)
                assert told.outcome is outcome, told
                assert ("has to be repaired first" in told.text) is (outcome is Outcome.LEFT)
            assert await everything(node, orders) == whole(orders)
            await assert_tidy(node)

    run_virtually(main)


def test_what_came_into_its_place_meanwhile_is_read_before_it_goes(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with copied(tmp_path, orders) as node:
            first, old, last = (row_at(node, orders, start) for start in (0, 10, 20))
            await node.store.damage(keys_of(old).log)
            await node.store.damage(keys_of(last).log)

            def decided(*others: RemoteLogSegmentMetadata) -> RepairDecision:
                return RepairDecision(RepairAction.RETIRE, "others serve", None, others)

            answers = [decided(first), decided(first), decided(first, last)]
            with monkeypatch.context() as patch:
                patch.setattr(SegmentRepairs, "decide", lambda *_: answers.pop(0))
                request = RepairRequest("orders", segment=old.segment_id.id, apply=True)
                told = await only(node, request)
            assert told.outcome is Outcome.LEFT
            assert f"{last.segment_id.id}, which serves in its place, has to be" in told.text
            assert told.tried == (f"{first.segment_id.id} serves in its place and is whole",)

    run_virtually(main)


def test_a_copy_whose_damaged_one_could_not_be_marked_counts(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object, **__: object) -> bool:
        raise RetryLater("no leader of the metadata quorum answers")

    async def main() -> None:
        async with copied(tmp_path, orders) as node:
            old = row_at(node, orders, 10)
            await node.store.damage(keys_of(old).log)
            with monkeypatch.context() as patch:
                patch.setattr(CleanUpTasks, "begin", away)
                told = await only(node)
            assert told.outcome is Outcome.COPIED
            assert told.text.endswith("not retired yet: no leader of the metadata quorum answers")
            assert await everything(node, orders) == whole(orders)
            assert (await only(node)).outcome is Outcome.REPAIRED
            await assert_tidy(node)

    run_virtually(main)


def test_a_claim_that_is_lost_in_the_middle_ends_the_repair(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """The later leader's node finds both as they are, and finishes it."""

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        lives: list[Node] = []

        async def another_claims(step: str) -> None:
            if step != "before COPY_SEGMENT_FINISHED" or not lives:
                return
            other = Incarnation(7, uuid(77), 1)
            claim = PartitionClaim(
                orders.partition, Mode.SIDECAR, 1, other, 1, epochs((0, 0), (1, 35))
            )
            await lives.pop().metadata.claim_partition(claim)

        async with world.boot(data_plane=True, hook=another_claims) as node:
            await node.remote_log.run_once()
            old = row_at(node, orders, 10)
            await node.store.damage(keys_of(old).log)
            lives.append(node)
            told = await only(node)
            assert told.outcome is Outcome.FAILED
            assert "claim" in told.text
            assert row_at(node, orders, 10) == old

    run_virtually(main)


def test_what_nothing_stands_in_for_is_never_retired(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with copied(tmp_path, orders) as node:
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            facts = RepairFacts(row_at(node, orders, 10), state, (), None, None, None)
            decision = plan_repair(facts)
            assert (decision.action, decision.in_its_place) == (RepairAction.LEAVE, ())
            assert "no segment serves its offsets in its place" in decision.text

    run_virtually(main)


def test_what_a_later_leaders_log_lacks_is_not_retired_for_other_records_at_its_offsets(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """It may be the last copy, and but a little of it be damaged: retention asks an admin first."""

    async def main() -> None:
        async with copied(tmp_path, orders) as node:
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            row = row_at(node, orders, 10)
            other = replace(row, segment_id=replace(row.segment_id, id=uuid(77)))
            served = ((ServedRange(10, 19, other.segment_id.id), other),)
            facts = RepairFacts(row, state, served, None, None, None)
            assert plan_repair(facts).action is RepairAction.RETIRE
            cut = replace(facts, state=replace(state, lineage=epochs((1, 0))))
            assert plan_repair(cut).action is RepairAction.LEAVE
            assert "a part of it lies outside the lineage" in plan_repair(cut).text
            across = replace(facts, state=replace(state, lineage=epochs((0, 0), (1, 15))))
            assert plan_repair(across).action is RepairAction.LEAVE

    run_virtually(main)


def test_a_run_is_remembered_though_others_followed(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with copied(tmp_path, orders) as node:
            runs = [await repaired(node, LOOK) for _ in range(RUNS_MAX + 1)]
            assert [node.repairs.run_of(run.id) for run in runs[1:]] == runs[1:]
            with pytest.raises(NotFound, match="are remembered"):
                node.repairs.run_of(runs[0].id)

    run_virtually(main)

"""Erasures on the real metadata log: every version goes, nothing of a live segment does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import Conflict, NotFound, Refused, RetryLater
from rlm.control.audit import AuditAction, AuditLine
from rlm.format.object_keys import segment_keys
from rlm.node_files.kill_switches import Switch
from rlm.reconcile.collection_plan import ObjectClass
from rlm.reconcile.collector import CollectorLimits
from rlm.reconcile.erasure import Erasure, Erasures
from rlm.reconcile.erasure_plan import Scope
from rlm.reconcile.erasure_request import ErasureRequest, ErasureState
from rlm.stores.tier_store import TierStore, TierStores
from rlmm.segment import RemoteLogSegmentMetadata
from rsm_backends.memory import MemoryStore
from rsm_backends.store import KeptVersion
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.one_node import LIMITS, PREFIX, Bucket, Node, Steps, World, new_world
from tests.rlm.planner_facts import uuid
from tests.rlm.retention.test_topic_deletion import mark, undo
from tests.rlm.test_service_retention import EVERYTHING_IS_OLD, decide, three_segments
from tests.rlm.virtual_time import run_virtually

MakeWorld = Callable[[], World]
WITH_TRASH = replace(LIMITS, retention_trash_s=3_600.0)
AN_HOUR_S = 3_600.0


def erasures(node: Node) -> Erasures:
    assert node.known is not None
    return node.parts.new_erasures(node.parts.new_collector(node.known, CollectorLimits()))


async def erase(
    node: Node, scope: Scope, *, apply: bool = True, deadline_s: float = AN_HOUR_S
) -> Erasure:
    runs = erasures(node)
    job = await runs.start(ErasureRequest(scope, apply, deadline_s, "a court's order"), "an admin")
    while job.state is ErasureState.RUNNING:
        await asyncio.sleep(1)
    assert runs.erasure(job.id) is job
    return job


async def versions(store: Bucket, prefix: str = "") -> list[KeptVersion]:
    return list((await store.versions_below(prefix)).versions)


def row_of(node: Node, log: KafkaLog, start: int) -> RemoteLogSegmentMetadata:
    rows = node.metadata.list_remote_log_segments(log.partition)
    return next(row for row in rows if row.start_offset == start)


def below(log: KafkaLog, before: int) -> Scope:
    return Scope("orders", log.partition.topic_id, 0, before)


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    return three_segments(tmp_path)


@pytest.fixture
def world(tmp_path: Path, orders: KafkaLog) -> MakeWorld:
    return lambda: new_world(tmp_path, (orders.log_dir,), versioned=True)


def test_what_lies_below_an_offset_goes_with_every_version(
    world: MakeWorld, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with world().boot(data_plane=True, limits=WITH_TRASH) as node:
            await node.remote_log.start()
            await asyncio.sleep(LIMITS.scan_interval_s)
            gone = set(_keys(row_of(node, orders, 0)))
            kept = {each for start in (10, 20) for each in _keys(row_of(node, orders, start))}
            looked = await erase(node, below(orders, 15), apply=False)
            assert (looked.segments, looked.kept_to_offset) == (1, 19)
            assert (looked.stores["main"].objects, looked.stores["main"].versions) == (3, 3)
            assert {each.key for each in await versions(node.store)} >= gone | kept
            await node.parts.expirer.delete_records(orders.partition, 15, apply=True)
            job = await erase(node, below(orders, 15))
            assert (job.state, job.text) == (ErasureState.FINISHED, "")
            assert set(job.gone) == {f"main:{key}" for key in gone}
            assert (job.segments, job.kept_to_offset, job.left) == (1, 19, [])
            assert job.stores["main"].versions == 3, "those that were deleted before"
            left = {each.key for each in await versions(node.store, f"{PREFIX}orders")}
            assert left == kept
            assert node.finished(orders.partition) == [(10, 19), (20, 29)]
            again = await erase(node, below(orders, 15))
            assert (again.state, again.gone_count) == (ErasureState.FINISHED, 0)
            await node.remote_log.close()
            await node.assert_quiesced()

    run_virtually(main)


def _keys(row: RemoteLogSegmentMetadata) -> tuple[str, ...]:
    return segment_keys(PREFIX, row.segment_id, row.start_offset).all()


def test_what_is_in_the_trash_does_not_wait_for_its_time(
    world: MakeWorld, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with world().boot(data_plane=True, limits=WITH_TRASH) as node:
            await node.remote_log.start()
            await asyncio.sleep(LIMITS.scan_interval_s)
            await decide(node, EVERYTHING_IS_OLD)
            await asyncio.sleep(2 * LIMITS.retention_interval_s)
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            assert (state.log_start_offset, state.expiry.below) == (0, 30)
            await node.parts.expirer.delete_records(orders.partition, 30, apply=True)
            job = await erase(node, below(orders, 30), deadline_s=1_800)
            assert job.state is ErasureState.FINISHED
            assert (job.segments, len(job.gone)) == (3, 9)
            assert await versions(node.store, f"{PREFIX}orders") == []
            await node.remote_log.close()

    run_virtually(main)


def test_a_topic_with_history_goes_whole_and_a_second_run_finds_nothing(
    world: MakeWorld, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with world().boot(data_plane=True) as node:
            await node.remote_log.start()
            await asyncio.sleep(LIMITS.scan_interval_s)
            await node.parts.expirer.delete_records(orders.partition, 10, apply=True)
            await asyncio.sleep(AN_HOUR_S)
            history = await versions(node.store, f"{PREFIX}orders")
            assert sum(each.is_marker for each in history) >= 3, "deleted, and still there"
            await mark(node, orders.partition, 0)
            job = await erase(node, Scope("orders"))
            assert (job.state, job.text) == (ErasureState.FINISHED, "")
            assert len(job.gone) == 9
            assert await versions(node.store, f"{PREFIX}orders") == []
            assert node.metadata.partition_state(orders.partition) is None
            again = await erase(node, Scope("orders", orders.partition.topic_id))
            assert (again.state, again.gone_count) == (ErasureState.FINISHED, 0)
            await node.remote_log.close()
            assert node.store.violations == []

    run_virtually(main)


def test_nothing_is_erased_that_nobody_ordered(world: MakeWorld, orders: KafkaLog) -> None:
    async def main() -> None:
        async with world().boot(data_plane=True) as node:
            await node.remote_log.run_once()
            before = await versions(node.store)
            for scope, why in (
                (Scope("orders"), "orders-0 is not being deleted: .*topics delete orders"),
                (below(orders, 15), "the log start of orders-0 is 0: first move it to 15"),
            ):
                with pytest.raises(Conflict, match=why) as refused:
                    await erase(node, scope)
                assert refused.value.reason == "NOT_ORDERED"
            with pytest.raises(NotFound):
                await erase(node, Scope("orders", orders.partition.topic_id, 7, 15))
            await mark(node, orders.partition, 0)
            await undo(node, orders.partition)
            with pytest.raises(Conflict, match="is not being deleted"):
                await erase(node, Scope("orders"))
            assert await versions(node.store) == before

    run_virtually(main)


def test_a_pause_stops_it_and_an_undo_ends_it(world: MakeWorld, orders: KafkaLog) -> None:
    async def main() -> None:
        async with world().boot(data_plane=True) as node:
            await node.remote_log.run_once()
            before = await versions(node.store, f"{PREFIX}orders")
            await mark(node, orders.partition, 7_200_000)
            switches = node.parts.given.switches
            await switches.pause(Switch.DELETING, by="an admin")
            with pytest.raises(Refused, match="paused"):
                await erase(node, Scope("orders"))
            await switches.resume(Switch.DELETING, by="an admin")
            waiting = asyncio.create_task(erase(node, Scope("orders")))
            await asyncio.sleep(60)
            await switches.pause(Switch.DELETING, by="an admin")
            job = await waiting
            assert job.state is ErasureState.INCOMPLETE
            assert "paused" in job.text
            await switches.resume(Switch.DELETING, by="an admin")
            waiting = asyncio.create_task(erase(node, Scope("orders")))
            await asyncio.sleep(60)
            await undo(node, orders.partition)
            job = await waiting
            assert (job.state, job.waiting) == (ErasureState.INCOMPLETE, 3)
            assert "withdrawn" in job.text
            job = await _late(node, orders)
            assert (job.state, job.waiting) == (ErasureState.INCOMPLETE, 3)
            assert "after 90 s 3 segments are left" in job.text
            assert await versions(node.store, f"{PREFIX}orders") == before

    run_virtually(main)


async def _late(node: Node, orders: KafkaLog) -> Erasure:
    await mark(node, orders.partition, 7_200_000)
    return await erase(node, Scope("orders"), deadline_s=90)


def test_objects_that_the_log_does_not_know_are_never_touched_and_told(
    world: MakeWorld, orders: KafkaLog
) -> None:
    """Also those whose ids it forgot: nobody can tell them from the last copy of something."""

    async def main() -> None:
        async with world().boot(data_plane=True) as node:
            await node.remote_log.start()
            await asyncio.sleep(LIMITS.scan_interval_s)
            row = row_of(node, orders, 0)
            stranger = _keys(replace(row, segment_id=replace(row.segment_id, id=uuid(77))))[2]
            other = f"{PREFIX}orders-eu/x"
            for key in (stranger, other, f"{PREFIX}orders-/0/note"):
                await node.store.put(key, b"x", crc32c=crc32c(b"x"))
            await mark(node, orders.partition, 0)
            job = await erase(node, Scope("orders"))
            assert job.state is ErasureState.INCOMPLETE
            assert [(each.key, each.version_id) for each in job.left] == [(stranger, None)]
            assert "the log does not know its segment" in job.left[0].why
            assert job.stores["main"].kept == {ObjectClass.FOREIGN: 1}
            assert {each.key for each in await versions(node.store, f"{PREFIX}orders")} == {
                stranger, other, f"{PREFIX}orders-/0/note",
            }  # fmt: skip
            await node.remote_log.close()

    run_virtually(main)


@pytest.mark.parametrize("what", ["versions are not listed", "a version is not deleted"])
def test_a_store_that_refuses_is_told_by_name_and_what_it_keeps_is_not_hidden(
    world: MakeWorld, orders: KafkaLog, what: str
) -> None:
    async def hook(name: str) -> None:
        if what == "versions are not listed" and name.startswith("before versions_below"):
            raise Refused("not allowed (AccessDenied)")
        if what == "a version is not deleted" and name == "before delete_version .log":
            raise Refused("not allowed (AccessDenied)")

    async def main() -> None:
        async with world().boot(data_plane=True, hook=hook) as node:
            await node.remote_log.start()
            await asyncio.sleep(LIMITS.scan_interval_s)
            await mark(node, orders.partition, 0)
            job = await erase(node, Scope("orders"))
            left = await versions(node.store, f"{PREFIX}orders")
            assert job.state is ErasureState.INCOMPLETE
            assert "AccessDenied" in f"{job.text} {job.left}"
            if what == "versions are not listed":
                assert job.stores["main"].versions_unknown == "not allowed (AccessDenied)"
                assert "the versions in the store main are unknown" in job.text
                assert len([each for each in left if not each.is_marker]) == 9
                assert (job.gone, job.gone_count) == ([], 0), "nobody saw that they are"
            else:
                assert {each.key.rpartition(".")[2] for each in left} == {"log"}
                assert {each.version_id for each in job.left} == {each.version_id for each in left}
                hidden = [each for each in job.left if "hides" in each.why]
                assert len(hidden) == sum(each.is_marker for each in left) > 0
                assert len(job.gone) == 6
            assert not (await node.store.list_page(f"{PREFIX}orders")).objects, "none is back"
            await node.remote_log.close()

    run_virtually(main)


def test_a_crash_anywhere_is_gone_on_with(tmp_path: Path) -> None:
    """At each request of the store's in turn the process is gone; the next one ends it."""
    for number in range(1, 12):
        path = tmp_path / str(number)
        path.mkdir()
        run_virtually(partial(_crash_and_go_on, path, three_segments(path), number))


async def _crash_and_go_on(path: Path, orders: KafkaLog, number: int) -> None:
    steps = Steps()
    world = new_world(path, (orders.log_dir,), versioned=True)
    async with world.boot(data_plane=True, hook=steps) as node:
        await node.remote_log.start()
        await asyncio.sleep(LIMITS.scan_interval_s)
        await mark(node, orders.partition, 0)
        steps.stop_at(steps.count + 13 * number)
        try:
            async with asyncio.timeout(AN_HOUR_S):
                await erase(node, Scope("orders"), deadline_s=2 * AN_HOUR_S)
        except TimeoutError:
            pass
    async with world.boot(data_plane=True) as node:
        await node.remote_log.start()
        await asyncio.sleep(LIMITS.scan_interval_s)
        job = await erase(node, Scope("orders", orders.partition.topic_id))
        assert (job.state, job.text) == (ErasureState.FINISHED, ""), number
        assert await versions(node.store, f"{PREFIX}orders") == []
        await node.remote_log.close()
        assert node.store.violations == []


def test_one_runs_at_a_time_and_a_store_without_versions_has_a_report_too(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot(data_plane=True) as node:
            await node.remote_log.start()
            await asyncio.sleep(LIMITS.scan_interval_s)
            await mark(node, orders.partition, 0)
            runs = erasures(node)
            request = ErasureRequest(Scope("orders"), True, AN_HOUR_S, "why")
            job = await runs.start(request, "an admin")
            with pytest.raises(Conflict, match="is running") as refused:
                await runs.start(request, "another")
            assert refused.value.reason == "RUNNING"
            with pytest.raises(NotFound):
                runs.erasure(uuid(1))
            while job.state is ErasureState.RUNNING:
                await asyncio.sleep(1)
            assert (job.state, len(job.gone)) == (ErasureState.FINISHED, 9)
            last = await runs.start(request, "an admin")
            lines: list[AuditLine] = []

            async def keep(line: AuditLine) -> None:
                lines.append(line)

            runs.keep_audit = keep
            await runs.close()
            assert last.state is ErasureState.FAILED
            assert lines[-1].why.endswith(
                "not finished: the node is shutting down: request the erasure again"
            )
            await node.remote_log.close()
            await node.assert_quiesced()

    run_virtually(main)


def test_a_store_that_the_settings_lack_is_told(world: MakeWorld, orders: KafkaLog) -> None:
    async def main() -> None:
        async with world().boot(data_plane=True) as node:
            await node.remote_log.start()
            await asyncio.sleep(LIMITS.scan_interval_s)
            await mark(node, orders.partition, 0)
            runs, empty = erasures(node), MemoryStore(lambda: 0)
            runs.stores = TierStores({"other": TierStore("other", empty, PREFIX)}, "other")
            lines: list[AuditLine] = []

            async def keep(line: AuditLine) -> None:
                lines.append(line)

            runs.keep_audit = keep
            job = await runs.start(ErasureRequest(Scope("orders"), True, AN_HOUR_S, "why"), "boss")
            while job.state is ErasureState.RUNNING:
                await asyncio.sleep(1)
            assert (job.state, job.gone) == (ErasureState.INCOMPLETE, [])
            assert "the store main: it has segments of the scope" in job.text
            assert lines[-1].why == f"erasure of orders: not finished: {job.text}"

            async def again(topic: str, elsewhere: dict[str, str]) -> str:
                asked = ErasureRequest(Scope(topic), True, AN_HOUR_S, "why", elsewhere)
                job = await runs.start(asked, "boss")
                while job.state is ErasureState.RUNNING:
                    await asyncio.sleep(1)
                assert (job.state is ErasureState.FINISHED) is (job.text == "")
                return job.text

            assert "the store main: it had segments" in await again("orders", {}), "rows are gone"
            assert await again("of another name", {}) == ""
            named = {"main": "node 2 has it", "other": "every node has it"}
            assert await again("orders", named) == "the store main: node 2 has it"
            assert await again("of another name", named) == "the store main: node 2 has it"
            assert await again("of another name", {}) == "", "no node names it any more"
            text = await again("orders", {})
            assert text.startswith("the store main: it had segments of the scope")
            assert "until it is restarted" in text
            await node.remote_log.close()

    run_virtually(main)


def test_under_another_clusters_prefix_nothing_is_deleted(
    world: MakeWorld, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with world().boot(data_plane=True) as node:
            await node.remote_log.start()
            await asyncio.sleep(LIMITS.scan_interval_s)
            await mark(node, orders.partition, 0)
            runs = erasures(node)
            runs.confirm_prefix = another_clusters
            job = await runs.start(ErasureRequest(Scope("orders"), True, AN_HOUR_S, "why"), "boss")
            while job.state is ErasureState.RUNNING:
                await asyncio.sleep(1)
            assert job.state is ErasureState.INCOMPLETE
            assert "another cluster's" in job.text
            assert "another cluster's" in str(job.stores["main"].trouble)
            assert (job.gone, job.gone_count) == ([], 0), "nobody saw that they are"
            left = await versions(node.store, f"{PREFIX}orders")
            assert sum(not each.is_marker for each in left) == 9, "the clean-up asked by itself"
            await node.remote_log.close()

    run_virtually(main)


async def another_clusters(_: TierStore) -> None:
    raise Refused("the prefix is another cluster's")


def test_no_byte_goes_before_its_line_in_the_audit_is_on_disk(
    world: MakeWorld, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with world().boot(data_plane=True) as node:
            await node.remote_log.start()
            await asyncio.sleep(LIMITS.scan_interval_s)
            await mark(node, orders.partition, 0)
            runs, lines = erasures(node), list[AuditLine]()
            full = False

            async def keep(line: AuditLine) -> None:
                if full:
                    raise RetryLater("the disk of the audit is full")
                lines.append(line)

            runs.keep_audit = keep
            request = ErasureRequest(Scope("orders"), True, AN_HOUR_S, "a court's order")
            job = await runs.start(request, "boss")
            await asyncio.sleep(5)
            full = True
            while job.state is ErasureState.RUNNING:
                await asyncio.sleep(1)
            assert job.state is not ErasureState.FINISHED
            assert "the disk of the audit is full" in job.text
            assert [(each.action, each.by) for each in lines] == [(AuditAction.ERASURE, "boss")]
            assert lines[0].why == "erasure of orders: begins: a court's order"
            left = await versions(node.store, f"{PREFIX}orders")
            assert sum(not each.is_marker for each in left) == 9
            await node.remote_log.close()

    run_virtually(main)


def test_a_node_that_ends_while_a_run_tells_its_end_writes_no_second_last_line(
    world: MakeWorld, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with world().boot(data_plane=True) as node:
            await node.remote_log.start()
            await asyncio.sleep(LIMITS.scan_interval_s)
            await mark(node, orders.partition, 0)
            runs, lines = erasures(node), list[AuditLine]()

            async def keep(line: AuditLine) -> None:
                lines.append(line)
                await asyncio.sleep(2)

            runs.keep_audit = keep
            request = ErasureRequest(Scope("orders"), True, AN_HOUR_S, "why")
            job = await runs.start(request, "boss")
            while not lines or "ended: " not in lines[-1].why:
                await asyncio.sleep(1)
            assert job.state is ErasureState.RUNNING
            await runs.close()
            assert (job.state, job.text) == (ErasureState.FINISHED, "")
            assert [each.why for each in lines if "ended" in each.why or "not fin" in each.why] == [
                "erasure of orders: ended: 9 objects are gone"
            ]
            await node.remote_log.close()

    run_virtually(main)

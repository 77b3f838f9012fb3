"""The broker's segments: copied by this node as its own, and read back byte by byte."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from rlm.control.surroundings import CopyLimits
from rlm.format.custom_metadata import custom_of
from rlmm.records.control_records import GapsAllowed
from rlmm.segment import SegmentState
from tests.rlm.delegated.delegating import NO_TOPICS, broker_of
from tests.rlm.delegated.plugin_client import (
    PluginClient,
    ToldError,
    client_of,
    files_of,
    of_disk,
    refused,
)
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.hooked_store import Hook, no_hook
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import LIMITS, Node, new_world
from tests.rlm.planner_facts import uuid
from tests.rlm.virtual_time import run_virtually

FINISHED = SegmentState.COPY_SEGMENT_FINISHED
DELETING = SegmentState.DELETE_SEGMENT_STARTED
OFFSET_INDEX, TIME_INDEX, PRODUCER_SNAPSHOT, TRANSACTION_INDEX, LEADER_EPOCHS = range(5)


@asynccontextmanager
async def beside(
    tmp_path: Path,
    orders: KafkaLog,
    hook: Hook = no_hook,
    broker: FakeBroker | None = None,
    limits: CopyLimits = LIMITS,
) -> AsyncIterator[tuple[Node, PluginClient]]:
    """A node that is ready for what its broker copies."""
    world = new_world(tmp_path, (orders.log_dir,))
    async with world.boot(
        broker=broker or broker_of(orders),
        topics=NO_TOPICS,
        data_plane=True,
        hook=hook,
        limits=limits,
    ) as node:
        await node.remote_log.start()
        plugin = client_of(node)
        async with plugin.http:
            await plugin.announce(orders.partition)
            await asyncio.sleep(1)
            yield node, plugin
        await node.remote_log.close()


def test_a_copied_segment_is_read_back_byte_by_byte_and_deleted_with_its_objects(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with beside(tmp_path, orders) as (node, plugin):
            row, log = of_disk(orders, 1, 0, 9), orders.log_bytes(0)
            await plugin.add(row)
            custom = await plugin.copy(files_of(orders, row))
            assert custom is not None
            assert custom_of(custom) is not None
            assert (await refused(plugin.fetch(row, 0, 9))).kind == "retry_later"
            await plugin.update(row, FINISHED, custom)
            assert await plugin.fetch(row, 0, len(log)) == log
            assert await plugin.fetch(row, 5, 6) == log[5:6]
            assert await plugin.fetch(row, 7, 7) == b""
            for start, end in ((0, len(log) + 1), (-1, 5), (6, 5)):
                assert (await refused(plugin.fetch(row, start, end))).kind == "invalid_request"
            index = (orders.directory / f"{0:020d}.index").read_bytes()
            assert await plugin.index(row, OFFSET_INDEX) == index
            assert await plugin.index(row, PRODUCER_SNAPSHOT)
            assert b"0 0" in await plugin.index(row, LEADER_EPOCHS)
            told = await refused(plugin.index(row, TRANSACTION_INDEX))
            assert (told.kind, told.reason) == ("not_found", "NO_SUCH_INDEX")
            for number in (-1, 5):
                assert (await refused(plugin.index(row, number))).kind == "invalid_request"
            await plugin.update(row, DELETING)
            before = await node.keys()
            await plugin.delete(row)
            assert len(await node.keys()) == len(before) - 3
            await asyncio.sleep(200)
            await node.assert_quiesced()

    run_virtually(main)


def test_no_index_is_said_to_be_missing_of_a_segment_that_is_not_known_or_anothers(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """[LOSS-7] The broker takes a missing transaction index for "none was aborted", for ever."""

    async def main() -> None:
        async with beside(tmp_path, orders) as (_, plugin):
            row = of_disk(orders, 1, 0, 9)
            assert (await refused(plugin.index(row, TRANSACTION_INDEX))).kind == "retry_later"
            await plugin.add(row)
            await plugin.update(row, FINISHED, b"of another RemoteStorageManager")
            told = await refused(plugin.index(row, TRANSACTION_INDEX))
            assert (told.kind, told.reason) == ("refused", "")
            assert (await refused(plugin.fetch(row, 0, 1))).kind == "refused"

    run_virtually(main)


def test_a_copy_that_its_broker_leaves_ends_and_is_cleaned_up_by_session_or_time(
    tmp_path: Path, orders: KafkaLog
) -> None:
    store_answers = asyncio.Event()

    async def stuck(name: str) -> None:
        if name.startswith("before") and ".rsm-manifest" in name:
            await store_answers.wait()

    async def main() -> None:
        async with beside(tmp_path, orders, stuck) as (node, plugin):
            row = of_disk(orders, 1, 0, 9)
            await plugin.add(row)
            copy = asyncio.create_task(plugin.copy(files_of(orders, row)))
            await asyncio.sleep(5)
            assert node.parts.driver.copier.is_under_way(row.segment_id.id)
            assert (await refused(plugin.update(row, DELETING))).kind == "retry_later"
            copy.cancel()
            store_answers.set()
            await asyncio.gather(copy, return_exceptions=True)
            assert not node.parts.driver.copier.is_under_way(row.segment_id.id)
            await asyncio.sleep(60)
            assert [each[2] for each in node.rows(orders.partition)] == ["COPY_SEGMENT_STARTED"]
            plugin.session = 2
            await plugin.announce(orders.partition)
            await asyncio.sleep(400)
            assert node.rows(orders.partition) == []
            await node.assert_quiesced()

    run_virtually(main)


def test_a_deletion_waits_for_a_copy_that_its_broker_gives_up(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """A tier that is disabled during a copy: a refusal would end the deletion of all."""

    async def stuck(name: str) -> None:
        if name.startswith("before put") and ".rsm-manifest" in name:
            await asyncio.sleep(3600)

    async def main() -> None:
        async with beside(tmp_path, orders, stuck) as (node, plugin):
            row = of_disk(orders, 1, 0, 9)
            await plugin.add(row)
            copy = asyncio.create_task(plugin.copy(files_of(orders, row)))
            await asyncio.sleep(5)
            deletion = asyncio.create_task(plugin.update(row, DELETING))
            await asyncio.sleep(2)
            assert node.parts.driver.copier.is_under_way(row.segment_id.id)
            copy.cancel()
            await deletion
            await asyncio.sleep(400)
            assert node.rows(orders.partition) == []

    run_virtually(main)


def test_a_copy_that_comes_twice_is_made_once(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with beside(tmp_path, orders) as (_, plugin):
            row = of_disk(orders, 1, 0, 9)
            await plugin.add(row)
            copies = [plugin.copy(files_of(orders, row)) for _ in range(2)]
            first, second = await asyncio.gather(*copies, return_exceptions=True)
            assert isinstance(first, bytes)
            assert isinstance(second, ToldError)
            assert "copied already" in str(second)

    run_virtually(main)


def test_a_copy_whose_turn_comes_after_its_deletion_sends_nothing(
    tmp_path: Path, orders: KafkaLog
) -> None:
    store_answers = asyncio.Event()
    put: list[str] = []

    async def stuck(name: str) -> None:
        if name.startswith("before put") and ".log" in name:
            put.append(name)
            await store_answers.wait()

    async def main() -> None:
        one_at_a_time = replace(LIMITS, copies_parallel_max=1)
        async with beside(tmp_path, orders, stuck, limits=one_at_a_time) as (_, plugin):
            rows = [of_disk(orders, 1, 0, 9), of_disk(orders, 2, 10, 19)]
            for row in rows:
                await plugin.add(row)
            copies = [asyncio.create_task(plugin.copy(files_of(orders, row))) for row in rows]
            await asyncio.sleep(5)
            await plugin.update(rows[1], DELETING)
            store_answers.set()
            assert await copies[0]
            assert (await refused(copies[1])).kind == "conflict"
            assert len(put) == 1

    run_virtually(main)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"log": "/etc/passwd"}, "invalid_request"),
        ({"offset_index": "00000000000000000010.index"}, "invalid_request"),
        ({"producer_snapshot": "00000000000000000000.snapshot"}, "invalid_request"),
        ({"leader_epochs": b"x"}, "corrupt_data"),
    ],
)
def test_files_that_are_not_the_segments_are_refused(
    tmp_path: Path, orders: KafkaLog, change: dict[str, str | bytes], kind: str
) -> None:
    async def main() -> None:
        async with beside(tmp_path, orders) as (_, plugin):
            row = of_disk(orders, 1, 0, 9)
            await plugin.add(row)
            files = replace(files_of(orders, row), **change)  # type: ignore[arg-type]
            assert (await refused(plugin.copy(files))).kind == kind

    run_virtually(main)


def test_only_what_was_just_added_here_is_copied(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with beside(tmp_path, orders) as (_, plugin):
            row = of_disk(orders, 1, 0, 9)
            assert (await refused(plugin.copy(files_of(orders, row)))).kind == "retry_later"
            await plugin.add(row)
            short = replace(row, segment_id=replace(row.segment_id, id=uuid(2)), size_bytes=5)
            await plugin.add(short)
            assert (await refused(plugin.copy(files_of(orders, short)))).kind == "conflict"

    run_virtually(main)


def test_a_damaged_segment_is_refused_and_not_begun_again_at_once(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with beside(tmp_path, orders) as (_, plugin):
            orders.damage(0)
            row = of_disk(orders, 1, 0, 9)
            await plugin.add(row)
            assert (await refused(plugin.copy(files_of(orders, row)))).kind == "corrupt_data"
            again = of_disk(orders, 2, 0, 9)
            told = await refused(plugin.add(again))
            assert told.kind == "retry_later"
            assert "tried later" in told.detail
            await asyncio.sleep(700)
            await plugin.add(again)

    run_virtually(main)


def test_a_segment_whose_head_and_epochs_delete_records_took_is_copied(tmp_path: Path) -> None:
    """The broker cuts its leader epochs at the log start, which lies inside of the segment."""
    orders = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((1, 7),))
    orders.write(0, 10, end=15, epoch=1)
    orders.write_across(0, 5, 10, epochs=(0, 1))

    async def main() -> None:
        async with beside(tmp_path, orders, broker=broker_of(orders, epoch=1)) as (node, plugin):
            row = replace(of_disk(orders, 1, 0, 9), leader_epochs=((1, 7),))
            await plugin.add(row)
            await plugin.update(row, FINISHED, await plugin.copy(files_of(orders, row)))
            assert node.finished(orders.partition) == [(0, 9)]

    run_virtually(main)


def test_a_segment_with_gaps_is_copied_once_they_are_known_to_be_legal(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """As in a log that was compacted once, or that a mirror wrote."""
    path = orders.directory / f"{0:020d}.log"
    whole = orders.log_bytes(0)
    batch_bytes = len(whole) // 10
    path.write_bytes(whole[: 4 * batch_bytes] + whole[5 * batch_bytes :])

    async def main() -> None:
        async with beside(tmp_path, orders) as (node, plugin):
            row = of_disk(orders, 1, 0, 9)
            await plugin.add(row)
            assert (await refused(plugin.copy(files_of(orders, row)))).kind == "corrupt_data"
            await node.metadata.record_gaps_allowed(GapsAllowed(orders.partition, "a mirror"))
            await plugin.update(row, FINISHED, await plugin.copy(files_of(orders, row)))
            assert node.finished(orders.partition) == [(0, 9)]

    run_virtually(main)


def told(node: Node, name: str = "copy_failed") -> list[str]:
    problems = node.remote_log.node_problems()
    return [each.text for each in problems if each.name == name]


def test_a_segment_that_cannot_be_copied_is_told_until_it_is_or_nobody_tries_any_more(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """All files of the segment behind it are gone: it seems to reach over their offsets."""
    for path in orders.directory.glob(f"{10:020d}.*"):
        path.unlink()

    async def main() -> None:
        async with beside(tmp_path, orders) as (node, plugin):

            async def attempt(number: int) -> None:
                row = of_disk(orders, number, 0, 19)
                await plugin.add(row)
                assert (await refused(plugin.copy(files_of(orders, row)))).kind == "corrupt_data"

            assert told(node) == []
            await attempt(1)
            (text,) = told(node)
            assert text.startswith("1 partition is not copied for the broker: orders-0: the segm")
            assert "offsets 10 to 19 are missing" in text
            assert "`strandline partitions allow-gaps`" in text
            await asyncio.sleep(610)
            assert told(node) == [text]
            await attempt(2)
            await asyncio.sleep(610)
            assert told(node) == [text]
            await asyncio.sleep(610)
            assert told(node) == []
            await attempt(3)
            await node.metadata.record_gaps_allowed(GapsAllowed(orders.partition, "ann: gone"))
            await asyncio.sleep(610)
            row = of_disk(orders, 4, 0, 19)
            await plugin.add(row)
            await plugin.update(row, FINISHED, await plugin.copy(files_of(orders, row)))
            assert node.finished(orders.partition) == [(0, 19)], "the end stays the broker's"
            assert told(node) == []

    run_virtually(main)


def test_a_node_that_has_other_paths_than_its_broker_is_told_and_makes_no_row_each_run(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """As where broker and node run in containers that mount the same disk in different places."""
    elsewhere = Path("/var/lib/kafka-of-the-broker") / orders.directory.name

    async def main() -> None:
        async with beside(tmp_path, orders) as (node, plugin):
            row = of_disk(orders, 1, 0, 9)
            seen = files_of(orders, row)
            unseen = replace(seen, log=str(elsewhere / Path(seen.log).name))
            await plugin.add(row)
            assert (await refused(plugin.copy(unseen))).kind == "invalid_request"
            (text,) = told(node, "paths")
            assert text.startswith("1 partition is not copied for the broker: orders-0: the segm")
            assert str(elsewhere) in text
            assert "empty kafka.log_dirs: then the broker sends the files" in text
            assert told(node) == []
            again = of_disk(orders, 2, 0, 9)
            refusal = await refused(plugin.add(again))
            assert (refusal.kind, "tried later" in refusal.detail) == ("retry_later", True)
            await asyncio.sleep(610)
            assert told(node, "paths") == [text], "it stays as long as the broker tries"
            await plugin.add(again)
            custom = await plugin.copy(files_of(orders, again))
            await plugin.update(again, FINISHED, custom)
            assert told(node, "paths") == []

    run_virtually(main)


def test_files_that_the_nodes_user_may_not_read_are_told_and_make_no_row_each_run(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with beside(tmp_path, orders) as (node, plugin):
            row = of_disk(orders, 1, 0, 9)
            await plugin.add(row)
            with monkeypatch.context() as patch:
                patch.setattr("os.access", lambda *_: False)
                assert (await refused(plugin.copy(files_of(orders, row)))).kind == "refused"
            (text,) = told(node, "paths")
            assert "this node's user may not read" in text
            assert (await refused(plugin.add(of_disk(orders, 2, 0, 9)))).kind == "retry_later"

    run_virtually(main)

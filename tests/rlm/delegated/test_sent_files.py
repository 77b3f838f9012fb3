"""Segments whose files the broker sends, to a node that does not see its disk."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.errors import Conflict
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from kafka_formats.properties import encode_partition_metadata
from rlm.delegated import sent_files, spool, wire
from rlm.delegated.spool import SpoolLimits
from rlm.format.custom_metadata import custom_of
from rlm.leadership.leadership import Leads, LocalLogStart
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState
from tests.rlm.delegated.delegating import NO_TOPICS, TIERED
from tests.rlm.delegated.plugin_client import (
    PluginClient,
    ToldError,
    body_of,
    client_of,
    contents_of,
    files_of,
    of_disk,
    refused,
)
from tests.rlm.hooked_store import Hook, no_hook
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.one_node import Node, new_world
from tests.rlm.planner_facts import uuid
from tests.rlm.telling_broker import TellingBroker
from tests.rlm.virtual_time import run_virtually

FINISHED = SegmentState.COPY_SEGMENT_FINISHED


@asynccontextmanager
async def far(
    tmp_path: Path, orders: KafkaLog, hook: Hook = no_hook, limits: SpoolLimits | None = None
) -> AsyncIterator[tuple[Node, PluginClient]]:
    """A node that is ready for what its broker copies, and does not see its disk."""
    tip = orders.partition
    broker = TellingBroker(
        {(tip.topic, tip.partition): Leads(0, 25)}, TIERED, LocalLogStart(0, 0),
        {tip.topic: tip.topic_id}, epochs=(EpochEntry(0, 0),),
    )  # fmt: skip
    world = new_world(tmp_path, ())
    world.spool = limits or world.spool
    async with world.boot(broker=broker, topics=NO_TOPICS, data_plane=True, hook=hook) as node:
        await node.remote_log.start()
        plugin = client_of(node)
        async with plugin.http:
            await plugin.announce(tip)
            await asyncio.sleep(1)
            yield node, plugin
        await node.remote_log.close()


def left_in_spool(tmp_path: Path) -> list[str]:
    return [
        path.name for path in tmp_path.rglob("*") if "spool" in path.parts[len(tmp_path.parts) : -1]
    ]


def test_a_segment_that_is_sent_is_as_one_that_was_read(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with far(tmp_path, orders) as (node, plugin):
            row, log = of_disk(orders, 1, 0, 9), orders.log_bytes(0)
            await plugin.add(row)
            files = files_of(orders, row)
            assert await plugin.asks_for_files(files)
            custom = await plugin.send(files)
            assert custom_of(custom) is not None
            await plugin.update(row, FINISHED, custom)
            assert await plugin.fetch(row, 0, len(log)) == log
            assert await plugin.index(row, 0) == (orders.directory / f"{0:020d}.index").read_bytes()
            assert b"0 0" in await plugin.index(row, 4)
            assert left_in_spool(tmp_path) == []
            assert node.remote_log.node_problems() == ()

    run_virtually(main)


def test_a_plug_in_that_sends_no_files_is_told_what_to_do(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with far(tmp_path, orders) as (_, plugin):
            row = of_disk(orders, 1, 0, 9)
            files = files_of(orders, row)
            told = await refused(plugin.asks_for_files(files))
            assert (told.kind, "not added yet" in told.detail) == ("retry_later", True)
            await plugin.add(row)
            told = await refused(plugin.copy(files))
            assert (told.kind, "use a plug-in" in told.detail) == ("retry_later", True)

    run_virtually(main)


async def wrong(
    plugin: PluginClient,
    orders: KafkaLog,
    number: int,
    contents: list[bytes | None],
    rest: bytes = b"",
) -> ToldError:
    row = of_disk(orders, number, 0, 9)
    await plugin.add(row)
    return await refused(
        plugin.send(files := files_of(orders, row), body_of(files, contents) + rest)
    )


def test_a_stream_that_is_not_the_segments_files_is_never_copied(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with far(tmp_path, orders) as (node, plugin):
            before = await node.keys()
            row = of_disk(orders, 1, 0, 9)
            good = contents_of(files_of(orders, row))
            log = good[0]
            assert log is not None
            told = await wrong(plugin, orders, 1, [log + b"x", *good[1:]])
            assert (told.kind, "was added with" in told.detail) == ("conflict", True)
            told = await wrong(plugin, orders, 2, good, b"more")
            assert (told.kind, "bytes follow" in told.detail) == ("invalid_request", True)
            told = await wrong(plugin, orders, 3, [None, *good[1:]])
            assert told.kind == "conflict"
            named = [*good[:3], b"x", *good[4:]]
            assert (await wrong(plugin, orders, 4, named)).kind == "invalid_request"
            for number, changed in ((5, b"0\n1\n1 0\n"), (6, None)):
                told = await wrong(plugin, orders, number, [*good[:6], changed])
                assert (told.kind, told.reason) == ("conflict", "SOURCE_CHANGED")
                await asyncio.sleep(700)
            other = encode_partition_metadata(uuid(99))
            told = await wrong(plugin, orders, 7, [*good[:5], other, good[6]])
            assert (told.kind, told.reason) == ("conflict", "SOURCE_CHANGED")
            assert await node.keys() == before
            assert left_in_spool(tmp_path) == []

    run_virtually(main)


def test_a_stream_that_is_cut_or_changed_on_its_way_is_asked_for_again(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with far(tmp_path, orders) as (node, plugin):
            before = await node.keys()
            row = of_disk(orders, 1, 0, 9)
            await plugin.add(row)
            files = files_of(orders, row)
            body = body_of(files)
            for cut in (0, 3, 40, len(body) - 100, len(body) - 1):
                assert (await refused(plugin.send(files, body[:cut]))).kind == "retry_later"
            flipped = bytearray(body)
            flipped[-100] ^= 1
            told = await refused(plugin.send(files, bytes(flipped)))
            assert (told.kind, "changes bytes" in told.detail) == ("retry_later", True)
            assert await node.keys() == before
            assert left_in_spool(tmp_path) == []

    run_virtually(main)


def test_a_segment_may_be_larger_than_other_bodies(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with far(tmp_path, orders) as (_, plugin):
            row = replace(of_disk(orders, 1, 0, 9), size_bytes=5_000_000)
            await plugin.add(row)
            files = files_of(orders, row)
            body = body_of(files, [bytes(5_000_000), *contents_of(files)[1:]])
            assert (await refused(plugin.send(files, body))).kind == "corrupt_data"
            assert (await refused(plugin.call("copy", body))).status == 413

    run_virtually(main)


def test_a_damaged_segment_that_is_sent_is_refused_as_one_that_is_read(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with far(tmp_path, orders) as (_, plugin):
            orders.damage(0)
            row = of_disk(orders, 1, 0, 9)
            await plugin.add(row)
            assert (await refused(plugin.send(files_of(orders, row)))).kind == "corrupt_data"
            assert "tried later" in (await refused(plugin.add(of_disk(orders, 2, 0, 9)))).detail

    run_virtually(main)


def test_a_full_disk_is_told_and_the_segment_comes_again(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with far(tmp_path, orders) as (node, plugin):
            row = of_disk(orders, 1, 0, 9)
            await plugin.add(row)
            with monkeypatch.context() as patched:

                def full(*_: object) -> int:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

                patched.setattr(sent_files, "_append", full)
                told = await refused(plugin.send(files_of(orders, row)))
            assert (told.kind, told.reason) == ("retry_later", "SPOOL")
            (problem,) = node.remote_log.node_problems()
            assert (problem.name, "No space left" in problem.text) == ("spool", True)
            assert left_in_spool(tmp_path) == []
            with monkeypatch.context() as patched:
                patched.setattr(spool, "_free_bytes", lambda _: row.size_bytes - 1)
                told = await refused(plugin.add(of_disk(orders, 2, 10, 19)))
                assert (told.kind, told.reason) == ("retry_later", "SPOOL")
            await plugin.update(row, FINISHED, await plugin.send(files_of(orders, row)))
            assert node.remote_log.node_problems() == ()

    run_virtually(main)


def test_a_segment_that_never_fits_is_refused_before_a_row_is_made(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        limits = SpoolLimits(Path(), bytes_max=10, free_bytes_min=0)
        async with far(tmp_path, orders, limits=limits) as (node, plugin):
            told = await refused(plugin.add(of_disk(orders, 1, 0, 9)))
            assert (told.kind, "spool.bytes_max" in told.detail) == ("retry_later", True)
            assert node.rows(orders.partition) == []

    run_virtually(main)


def test_more_segments_than_may_come_at_once_wait_for_their_turn(
    tmp_path: Path, orders: KafkaLog
) -> None:
    store_answers = asyncio.Event()

    async def stuck(name: str) -> None:
        if name.startswith("before") and ".rsm-manifest" in name:
            await store_answers.wait()

    async def main() -> None:
        limits = SpoolLimits(Path(), copies_max=1, free_bytes_min=0)
        async with far(tmp_path, orders, stuck, limits) as (node, plugin):
            first, second = of_disk(orders, 1, 0, 9), of_disk(orders, 2, 10, 19)
            began = []

            async def noted(row: RemoteLogSegmentMetadata) -> AsyncIterator[bytes]:
                body = body_of(files_of(orders, row))
                head = 4 + int.from_bytes(body[:4], "big")
                yield body[:head]
                began.append(row)
                yield body[head:]

            copies = []
            for row in (first, second):
                await plugin.add(row)
                copies.append(asyncio.create_task(plugin.send(files_of(orders, row), noted(row))))
                await asyncio.sleep(5)
            assert began == [first]
            copies[0].cancel()
            store_answers.set()
            await plugin.update(second, FINISHED, await copies[1])
            assert began == [first, second]
            assert node.finished(orders.partition) == [(10, 19)]
            assert left_in_spool(tmp_path) == []

    run_virtually(main)


def test_a_broker_that_leaves_in_the_middle_leaves_nothing(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with far(tmp_path, orders) as (_, plugin):
            row = of_disk(orders, 1, 0, 9)
            await plugin.add(row)

            async def halfway() -> AsyncIterator[bytes]:
                body = body_of(files_of(orders, row))
                yield body[: len(body) // 2]
                await asyncio.Event().wait()

            copy = asyncio.create_task(plugin.send(files_of(orders, row), halfway()))
            await asyncio.sleep(5)
            assert left_in_spool(tmp_path) != []
            told = await refused(plugin.send(files_of(orders, row)))
            assert (told.kind, "copied already" in told.detail) == ("conflict", True)
            copy.cancel()
            await asyncio.gather(copy, return_exceptions=True)
            assert left_in_spool(tmp_path) == []
            await plugin.update(row, FINISHED, await plugin.send(files_of(orders, row)))

    run_virtually(main)


def test_a_sender_that_falls_silent_is_given_up(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with far(tmp_path, orders) as (_, plugin):
            row = of_disk(orders, 1, 0, 9)
            await plugin.add(row)

            async def silent() -> AsyncIterator[bytes]:
                yield body_of(files_of(orders, row))[:200]
                await asyncio.Event().wait()

            told = await refused(plugin.send(files_of(orders, row), silent()))
            assert (told.kind, "too long" in told.detail) == ("retry_later", True)
            assert left_in_spool(tmp_path) == []

    run_virtually(main)


def test_what_a_dead_process_left_in_the_spool_goes_at_the_next_start(tmp_path: Path) -> None:
    left = tmp_path / "spool-1" / str(uuid(1)) / "orders-0"
    left.mkdir(parents=True)
    (left / "00000000000000000000.log").write_bytes(b"half")
    of_somebody = tmp_path / "elsewhere" / "file"
    of_somebody.parent.mkdir()
    of_somebody.touch()
    (tmp_path / "spool-1" / "link").symlink_to(of_somebody.parent)
    (tmp_path / "spool-1" / "stray").touch()
    mine = spool.Spool(SpoolLimits(tmp_path / "spool-1"), lambda: 0.0)
    mine.own()
    mine.close()
    mine.own()
    assert list((tmp_path / "spool-1").iterdir()) == []
    assert of_somebody.exists()
    assert wire.SENT_FILES == 7


def test_a_spool_that_another_process_uses_is_left_as_it_is(tmp_path: Path) -> None:
    """Nodes of two clusters with one id, and one `spool.dir`."""
    first, second = (spool.Spool(SpoolLimits(tmp_path / "spool-1"), lambda: 0.0) for _ in range(2))
    first.own()
    coming = tmp_path / "spool-1" / str(uuid(1)) / "orders-0"
    coming.mkdir(parents=True)
    with pytest.raises(Conflict, match=r"spool-1 is in use .* spool\.dir"):
        second.own()
    assert coming.exists()
    first.close()
    second.own()
    assert not coming.exists()


@pytest.mark.parametrize("planted", ["link", "directory"])
def test_a_spool_that_another_user_planted_is_not_emptied_and_not_used(
    tmp_path: Path, planted: str
) -> None:
    """A node that starts with spool.dir = "/tmp" would empty the directory that a link names."""
    shared, victim = tmp_path / "tmp", tmp_path / "data"
    victim.mkdir()
    (victim / "metadata").mkdir()
    shared.mkdir()
    shared.chmod(0o1777)
    mine = spool.Spool(SpoolLimits(shared / "spool-1"), lambda: 0.0)
    if planted == "link":
        (shared / "spool-1").symlink_to(victim)
    else:
        (shared / "spool-1").mkdir()
        (shared / "spool-1").chmod(0o777)
    mine.own()
    with pytest.raises(spool.NoRoom, match=r"spool\.dir that only its user can write to"):
        asyncio.run(mine.check_room(1))
    (problem,) = mine.problems()
    assert "a different user's" in problem.text
    mine.close()
    assert (victim / "metadata").is_dir()


def test_an_own_spool_in_a_shared_directory_is_used_again(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    mine = spool.Spool(SpoolLimits(tmp_path / "spool-1"), lambda: 0.0)
    for _ in range(2):
        mine.own()
        assert list((tmp_path / "spool-1").iterdir()) == []
        (tmp_path / "spool-1" / "left").touch()
        mine.close()


def test_a_segment_whose_files_never_fit_is_refused_at_once_and_no_other_waits_for_it(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """`add` knows the size of the .log alone, which fits: the indexes beside it are too much."""

    async def main() -> None:
        log_bytes = len(orders.log_bytes(0))
        limits = SpoolLimits(Path(), bytes_max=log_bytes, free_bytes_min=0)
        async with far(tmp_path, orders, limits=limits) as (node, plugin):
            row = of_disk(orders, 1, 0, 9)
            await plugin.add(row)
            async with asyncio.timeout(5):
                told = await refused(plugin.send(files_of(orders, row)))
            assert (told.kind, told.reason) == ("retry_later", "SPOOL")
            (problem,) = node.remote_log.node_problems()
            assert "spool.bytes_max" in problem.text

    run_virtually(main)


def test_two_segments_do_not_count_on_the_same_free_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = SpoolLimits(tmp_path / "spool-1", free_bytes_min=10)
    mine = spool.Spool(limits, lambda: 0.0)
    monkeypatch.setattr(spool, "_free_bytes", lambda _: 110)
    first, second = uuid(1), uuid(2)

    async def main() -> None:
        async with mine.place(first, 60, "orders-0"):
            with pytest.raises(spool.NoRoom, match="others under way may take 60"):
                await mine.place(second, 60, "orders-1").__aenter__()
            async with mine.place(second, 40, "orders-1"):
                pass
        assert mine.refused == 1
        async with mine.place(second, 60, "orders-1"):
            pass

    run_virtually(main)


def test_a_segment_that_waits_for_the_spools_disk_is_not_added_behind_its_topics_last_list(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that deletes a topic gives its copies up, lists once, and never asks again."""
    look = spool.Spool.check_room

    async def slow(self: spool.Spool, size_bytes: int, *, promised_bytes: int = 0) -> None:
        await asyncio.sleep(5)
        await look(self, size_bytes, promised_bytes=promised_bytes)

    async def main() -> None:
        async with far(tmp_path, orders) as (node, plugin):
            with monkeypatch.context() as patched:
                patched.setattr(spool.Spool, "check_room", slow)
                adding = asyncio.create_task(refused(plugin.add(of_disk(orders, 1, 0, 9))))
                await asyncio.sleep(1)
                plugin.seq = 2
                await plugin.announce()
                told = await adding
            assert (told.kind, "did not announce it" in told.detail) == ("retry_later", True)
            assert node.rows(orders.partition) == []

    run_virtually(main)

"""What scrubs found, kept by a node: merged, bounded, over restarts."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.errors import RetryLater
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.node_files import scrub_results
from rlm.node_files.scrub_results import (
    DAMAGE_MAX,
    FILE_NAME,
    DamagedSegment,
    PartitionScrub,
    ScrubFinding,
    ScrubResults,
)


def segment(number: int) -> DamagedSegment:
    finding = ScrubFinding(f"t/{number}.log", 7, None, "turned", "put it back")
    id_ = Uuid(number.to_bytes(16, "big"))
    return DamagedSegment(id_, 10 * number, 10 * number + 9, (finding,))


def result(
    number: int = 0, *damaged: int, topic: str = "orders", first: int = 0, last: int = 99
) -> PartitionScrub:
    partition = TopicIdPartition(topic, Uuid(bytes(15) + b"\x05"), number)
    return PartitionScrub(
        partition, first, last, 10, 1_000, 0, 0, len(damaged), 5, tuple(map(segment, damaged))
    )


def all_of(results: ScrubResults, topic: str | None = None, *, damaged: bool = False) -> list[int]:
    found = results.listed(topic, damaged=damaged, after=None, limit=100)
    return [each.partition.partition for each in found]


async def test_results_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    results = ScrubResults(path)
    await results.add([result(2, 3, 4), result(1), result(0, topic="a")])
    await results.add([result(1, 7)])
    with path.open("ab") as file:
        file.write(b'{"torn')
    again = ScrubResults(path)
    for each in (results, again):
        assert all_of(each) == [0, 1, 2]
        assert all_of(each, "orders", damaged=True) == [1, 2]
        assert each.of(result(1).partition) == result(1, 7)
        assert each.damaged_segments() == 3
        (problem,) = each.problems()
        assert "3 damaged segments in 2 partitions, the first orders-1" in problem.text
    assert len(path.read_bytes().splitlines()) == 3


async def test_damage_stands_until_its_segment_was_read_again() -> None:
    results = ScrubResults(None)
    await results.add([result(0, 2, 5)])
    await results.add([replace(result(0, first=0, last=29), scrubbed_at_ms=9)])
    found = results.of(result().partition)
    assert found is not None
    assert (found.damaged, found.scrubbed_at_ms) == (1, 9)
    assert found.damage == (segment(5),)
    await results.add([replace(result(0), unread=1)])
    assert results.damaged_segments() == 1, "it may be the one that was not read"
    await results.add([result(0)])
    assert results.damaged_segments() == 0
    assert results.problems() == ()


async def test_pages_follow_each_other() -> None:
    results = ScrubResults(None)
    await results.add([result(number) for number in range(7)])
    after, seen = None, []
    while page := results.listed("orders", damaged=False, after=after, limit=3):
        seen += [each.partition.partition for each in page]
        after = page[-1].key
    assert seen == list(range(7))


async def test_what_is_kept_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrub_results, "PARTITIONS_MAX", 3)
    monkeypatch.setattr(scrub_results, "SLACK_BYTES", 2_000)
    results = ScrubResults(tmp_path / FILE_NAME)
    await results.add([result(0, *range(DAMAGE_MAX))])
    await results.add([result(0, *range(DAMAGE_MAX, 2 * DAMAGE_MAX), first=1_000, last=2_000)])
    found = results.of(result().partition)
    assert found is not None
    assert (found.damaged, len(found.damage)) == (2 * DAMAGE_MAX, DAMAGE_MAX)
    for number in range(1, 40):
        await results.add([result(number)])
    assert all_of(results) == [37, 38, 39]
    assert (tmp_path / FILE_NAME).stat().st_size < 10_000


async def test_a_disk_that_takes_nothing_is_told(tmp_path: Path) -> None:
    results = ScrubResults(tmp_path / "absent" / FILE_NAME)
    with pytest.raises(RetryLater, match="can't be kept"):
        await results.add([result(0)])
    assert results.of(result().partition) is None


async def test_results_kept_after_a_full_disk_survive_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that fails may have left the head of a line."""
    path = tmp_path / FILE_NAME
    results = ScrubResults(path)
    await results.add([result(0, 1)])
    append = scrub_results._append

    def fills_the_disk(path: Path, lines: Sequence[bytes]) -> None:
        append(path, [lines[0][:30]])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(scrub_results, "_append", fills_the_disk)
        with pytest.raises(RetryLater, match="No space left"):
            await results.add([result(2, 4)])
    await results.add([result(2, 4)])
    again = ScrubResults(path)
    for each in (results, again):
        assert all_of(each, damaged=True) == [0, 2]


async def test_a_rewrite_given_up_on_a_slow_disk_takes_no_later_result_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / FILE_NAME
    results = ScrubResults(path)
    monkeypatch.setattr(scrub_results, "SLACK_BYTES", 0)
    begun, go_on = threading.Event(), threading.Event()
    rewrite = scrub_results._rewrite

    def slowly(path: Path, known: Sequence[PartitionScrub]) -> int:
        if not begun.is_set():
            begun.set()
            assert go_on.wait(10)
        return rewrite(path, known)

    monkeypatch.setattr(scrub_results, "_rewrite", slowly)
    first = asyncio.create_task(results.add([result(0, 1)]))
    assert await asyncio.to_thread(begun.wait, 10)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    second = asyncio.create_task(results.add([result(2, 4)]))
    await asyncio.wait({second}, timeout=0.2)
    go_on.set()
    await second
    await asyncio.get_running_loop().shutdown_default_executor()
    assert all_of(ScrubResults(path), damaged=True) == [0, 2]

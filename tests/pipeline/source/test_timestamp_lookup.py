"""Times to offsets, over segments as a broker wrote them and as a node tiered them."""

from __future__ import annotations

import asyncio

import pytest

from pipeline.read.segment_slice import ReadSettings
from pipeline.source.tier_view import TierView
from rlm.read_request import Isolation
from rlmm.segment import TopicIdPartition
from tests.pipeline.restore.captured_tier import CapturedTier, tier_captured
from tests.pipeline.source.captured_rows import consumed

TOPICS = ("orders", "payments", "events", "profiles")


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> CapturedTier:
    folder = tmp_path_factory.mktemp("times") / "store"
    return asyncio.run(tier_captured(folder, *TOPICS))


def times(partition: TopicIdPartition) -> list[tuple[int, int]]:
    """(offset, timestamp) of every record, as a consumer read them."""
    records = consumed(partition.topic, partition.partition, committed=False)
    return [(record.offset, record.timestamp_ms) for record in records]


@pytest.mark.parametrize("topic", TOPICS)
def test_a_time_means_the_first_offset_that_is_as_young(tier: CapturedTier, topic: str) -> None:
    view = TierView(tier, ReadSettings())
    partitions = tier.partitions(topic)
    views = view.partitions(dict.fromkeys(partitions, 0))
    checked = 0
    for partition in partitions:
        latest = views[partition].bounds.latest
        records = [one for one in times(partition) if one[0] < latest]
        there = sorted({time for _, time in records})
        asked = {there[0] - 1, *there[:: max(1, len(there) // 12)], there[-1], there[-1] + 1}
        for time_ms in sorted(asked | {there[len(there) // 2] + 1}):
            first = next((offset for offset, time in records if time >= time_ms), None)
            assert view.first_offsets({partition: time_ms}, views) == {partition: first}
            checked += 1
    assert checked > 4
    every = view.first_offsets(dict.fromkeys(partitions, 0), views)
    assert every == {partition: times(partition)[0][0] for partition in partitions}
    assert set(view.first_offsets(dict.fromkeys(partitions, 2**63 - 1), views).values()) == {None}


def test_committed_readers_end_where_the_tier_decides(tier: CapturedTier) -> None:
    """A transaction is open at the end of either partition: its marker is not tiered, or never
    came.
    """
    wanted = dict.fromkeys(tier.partitions("payments"), 0)
    committed = TierView(tier, ReadSettings()).partitions(wanted)
    assert [view.bounds.latest for view in committed.values()] == [252, 336]
    uncommitted = ReadSettings(isolation=Isolation.READ_UNCOMMITTED)
    all_tiered = TierView(tier, uncommitted).partitions(wanted)
    assert [view.bounds.latest for view in all_tiered.values()] == [267, 341]

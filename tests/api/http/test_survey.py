"""Facts about all partitions, gathered once for many views."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from api.http.survey import FRESH_S, KEPT_FACTOR, Surveys, survey_of
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.copy.lag import Lag
from rlm.copy.partition_status import PartitionStatus
from tests.api.fakes import make_status
from tests.rlm.virtual_time import run_virtually


def status(topic: str, partition: int = 0, **changes: Any) -> PartitionStatus:
    tip = TopicIdPartition(topic, Uuid(topic.encode().ljust(16)), partition)
    return replace(make_status(tip), **changes)


def test_what_is_urgent_comes_first_and_the_list_by_name() -> None:
    statuses = [
        status("up to date", lag=Lag(0, 0, 0)),
        status("elsewhere", lag=None),
        status("late", lag=Lag(10, 2, 900)),
        status("blocked", lag=Lag(0, 0, 0), blocked="corrupt"),
        status("gone", lag=Lag(0, 0, 0, gone_offsets=3)),
        status("later", lag=Lag(5, 1, 1_000)),
    ]
    survey = survey_of(statuses, 0.0, 0.0, 7)
    assert [each.partition.topic for each in survey.worst] == ["gone", "blocked", "later", "late"]
    assert [each.partition.topic for each in survey.behind] == ["blocked", "gone", "late", "later"]
    assert (survey.reported, survey.lag) == (5, Lag(15, 3, 1_000, 3))


def test_sizes_are_by_topic_name() -> None:
    statuses = [
        status("b", 0, local_bytes=5, remote_bytes=7, remote_segments=1),
        status("a", 0, local_bytes=None, remote_bytes=2, remote_segments=1),
        status("b", 1, local_bytes=6, remote_bytes=8, remote_segments=2),
    ]
    first, second = survey_of(statuses, 0.0, 0.0, 7).topics
    assert (first.topic, first.partitions, first.replicas, first.local_bytes) == ("a", 1, 0, 0)
    assert (second.topic, second.partitions, second.replicas, second.local_bytes) == ("b", 2, 2, 11)
    assert (second.remote_segments, second.remote_bytes) == (3, 15)


class Counted:
    """Gathers no status, for `takes_s`, and counts how often, which is the metadata offset, too."""

    def __init__(self, takes_s: float) -> None:
        self.takes_s, self.times = takes_s, 0

    async def __call__(self) -> tuple[int, list[PartitionStatus]]:
        self.times += 1
        offset = self.times
        await asyncio.sleep(self.takes_s)
        return offset, []


def virtually(test: Callable[[Callable[[], float]], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        await test(asyncio.get_running_loop().time)

    run_virtually(run)


def test_many_views_are_made_of_one_survey_and_wait_for_the_first_alone() -> None:
    async def scenario(monotonic: Callable[[], float]) -> None:
        surveys, gather = Surveys(), Counted(2.0)
        first = await asyncio.gather(*(surveys.recent(gather, monotonic) for _ in range(9)))
        assert {age_ms for _, age_ms in first} == {2_000}
        assert (gather.times, monotonic()) == (1, 2.0)
        fresh_s = first[0][0].fresh_s
        assert fresh_s == 40.0, "a twentieth of the time at most is spent on it"
        await asyncio.sleep(fresh_s)
        kept, age_ms = await surveys.recent(gather, monotonic)
        assert (kept, age_ms) == (first[0][0], 42_000), "made anew behind the caller's back"
        await asyncio.sleep(3.0)
        newer, age_ms = await surveys.recent(gather, monotonic)
        assert (newer is kept, age_ms, gather.times) == (False, 3_000, 2)
        await asyncio.sleep(fresh_s * KEPT_FACTOR)
        _, age_ms = await surveys.recent(gather, monotonic)
        assert (age_ms, gather.times) == (2_000, 3), "what is too old is waited for"

    virtually(scenario)


def test_who_asks_for_more_than_a_survey_under_way_may_hold_waits_for_the_next() -> None:
    async def scenario(monotonic: Callable[[], float]) -> None:
        surveys, gather = Surveys(), Counted(1.0)
        (first, _), (second, age_ms) = await asyncio.gather(
            surveys.recent(gather, monotonic), surveys.recent(gather, monotonic, at_least=2)
        )
        assert (first.metadata_offset, second.metadata_offset, age_ms) == (1, 2, 1_000)
        assert (gather.times, monotonic()) == (2, 2.0)

    virtually(scenario)


def test_a_caller_that_leaves_ends_no_survey_and_a_failed_one_is_made_again() -> None:
    async def scenario(monotonic: Callable[[], float]) -> None:
        surveys, gather = Surveys(), Counted(FRESH_S)

        async def fails() -> tuple[int, list[PartitionStatus]]:
            raise OSError("the view is closed")

        failed = await asyncio.gather(surveys.recent(fails, monotonic), return_exceptions=True)
        assert isinstance(failed[0], OSError)
        impatient = asyncio.create_task(surveys.recent(gather, monotonic))
        await asyncio.sleep(0)
        impatient.cancel()
        await surveys.recent(gather, monotonic)
        assert (impatient.cancelled(), gather.times) == (True, 1)

    virtually(scenario)

"""How long what is deleted is waited for is measured: the clocks that wrote its row may be off."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import RetryLater
from rlm.control.run_events import ignore_event
from rlm.control.segment_proposals import Proposals
from rlm.control.surroundings import CopyLimits, Identity, Surroundings
from rlm.delete.clean_up import CleanUp
from rlm.delete.clean_up_tasks import CleanUpTasks
from rlm.stores.tier_store import TierStore, TierStores
from rlmm.segment import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, SegmentState
from rsm_backends.memory import MemoryStore
from tests.api.fakes import make_segment
from tests.rlm.planner_facts import ME
from tests.rlm.virtual_time import START_MS, run_virtually, virtual_ambient

YEAR_MS = 365 * 86_400_000
LIMITS = CopyLimits(upload_deadline_s=300.0, upload_margin_s=30.0, delete_delay_s=60.0)
DELETING = make_segment(0, SegmentState.DELETE_SEGMENT_STARTED)
STARTED = SegmentState.COPY_SEGMENT_STARTED
OFF_MS = [-YEAR_MS, 0, YEAR_MS]


def attempt(off_ms: int) -> RemoteLogSegmentMetadata:
    """A copy that did not finish, marked at once, by a clock that is so far off."""
    now_ms = START_MS + off_ms
    return replace(
        DELETING, finished_at=-1, event_timestamp_ms=now_ms, upload_deadline_ms=now_ms + 300_000
    )


class Deletes(MemoryStore):
    """Notes when objects were deleted."""

    def __init__(self) -> None:
        super().__init__(lambda: START_MS)
        self.at_s: list[float] = []

    async def delete_many(self, keys: Sequence[str]) -> None:
        self.at_s.append(asyncio.get_running_loop().time())
        await super().delete_many(keys)


class Rows:
    """Every proposal is accepted. Rows are there until they are `gone`."""

    def __init__(self) -> None:
        self.at_s: list[float] = []
        self.gone = False

    @property
    def rows(self) -> Rows:
        return self

    def segment(self, _partition: object, _id: object) -> RemoteLogSegmentMetadata | None:
        return None if self.gone else DELETING

    async def finish_delete(self, _: RemoteLogSegmentMetadataUpdate) -> None:
        self.at_s.append(asyncio.get_running_loop().time())


async def confirmed(_: TierStore) -> None:
    """The prefix is ours."""


def tasks_of(store: MemoryStore, rows: Rows, set_ms: list[int]) -> CleanUpTasks:
    ambient = virtual_ambient()
    right_ms = ambient.now_ms
    clean_up = CleanUp(
        cast(Proposals, rows),
        TierStores({"main": TierStore("main", store, "")}, "main"),
        Surroundings(
            Identity("cluster", None, ME),
            LIMITS,
            replace(ambient, now_ms=lambda: right_ms() + sum(set_ms)),
        ),
        ignore_event,
        asyncio.Semaphore(1),
        lambda _: None,
        confirmed,
    )
    return CleanUpTasks(clean_up, lambda *_: None)


@pytest.mark.parametrize("off_ms", OFF_MS)
@pytest.mark.parametrize("set_ms", OFF_MS)
def test_an_attempts_last_delete_waits_for_its_deadline_as_measured(
    off_ms: int, set_ms: int
) -> None:
    async def main() -> None:
        store, rows, sets = Deletes(), Rows(), list[int]()
        tasks = tasks_of(store, rows, sets)
        await tasks.begin(attempt(off_ms), 5, "left over")
        await asyncio.sleep(100)
        sets.append(set_ms)
        await asyncio.sleep(229)
        assert rows.at_s == []
        await asyncio.sleep(2)
        assert rows.at_s != []
        assert store.at_s == [0, 330]

    run_virtually(main)


def test_what_arrives_while_the_first_delete_is_under_way_goes_with_a_second_one() -> None:
    """A delete, the second try, begins before the last request may come, and ends behind."""

    class Slow(Deletes):
        async def delete_many(self, keys: Sequence[str]) -> None:
            await super().delete_many(keys)
            if len(self.at_s) == 1:
                raise RetryLater("the store does not answer")
            if len(self.at_s) == 2:
                await asyncio.sleep(20)
                await self.put(keys[0], b"late", crc32c=crc32c(b"late"))
                await asyncio.sleep(20)

    async def main() -> None:
        store, rows = Slow(), Rows()
        tasks = tasks_of(store, rows, [])
        for wait_s in (300, 100):
            await tasks.begin(attempt(0), 5, "left over")
            await asyncio.sleep(wait_s)
        assert (store.at_s, rows.at_s) == ([0, 300, 340], [340])
        assert (await store.list_page("")).objects == ()

    run_virtually(main)


@pytest.mark.parametrize(
    "row",
    [attempt(0), replace(DELETING, finished_at=7)],
    ids=["a copy that did not finish", "a finished one"],
)
def test_a_mark_that_is_refused_touches_no_object(row: RemoteLogSegmentMetadata) -> None:
    """Apply keeps a segment that alone serves offsets, or whose policy changed meanwhile."""

    class Refusing(Rows):
        async def mark_deleted(self, *_: object) -> bool:
            return False

    async def main() -> None:
        store, rows = Deletes(), Refusing()
        tasks = tasks_of(store, rows, [])
        state = SegmentState.COPY_SEGMENT_FINISHED if row.finished_at >= 0 else STARTED
        assert not await tasks.begin(replace(row, state=state), 5, "retention")
        assert not tasks.is_running(row.segment_id.id)
        await asyncio.sleep(1_000)
        assert (store.at_s, rows.at_s) == ([], [])

    run_virtually(main)


@pytest.mark.parametrize("off_ms", OFF_MS)
def test_readers_of_a_finished_segment_have_their_delay_as_measured(off_ms: int) -> None:
    async def main() -> None:
        store, rows = Deletes(), Rows()
        row = replace(DELETING, finished_at=7, event_timestamp_ms=START_MS + off_ms)
        await tasks_of(store, rows, []).begin(row, 5, "retention")
        await asyncio.sleep(100)
        assert store.at_s == [60]
        assert rows.at_s != []

    run_virtually(main)


def test_a_process_that_is_about_to_end_never_waits_longer_than_it_would_have_to_measure() -> None:
    async def main() -> None:
        store, rows = Deletes(), Rows()
        tasks = tasks_of(store, rows, [])
        tasks.hurry()
        assert tasks.left_over(attempt(YEAR_MS)).due_ms == START_MS + 330_000
        assert tasks.left_over(attempt(-100_000)).due_ms == START_MS + 230_000
        await tasks.begin(attempt(YEAR_MS), 5, "left over")
        await asyncio.sleep(331)
        assert rows.at_s != []

    run_virtually(main)


def test_what_failed_here_is_no_trouble_any_more_once_another_node_removed_it() -> None:
    class Away(MemoryStore):
        async def delete_many(self, keys: Sequence[str]) -> None:
            raise RetryLater(f"{len(keys)} objects: the store does not answer")

    async def main() -> None:
        rows = Rows()
        tasks = tasks_of(Away(lambda: START_MS), rows, [])
        await tasks.begin(replace(DELETING, finished_at=7), 5, "retention")
        await asyncio.sleep(100)
        assert "1 segments could not be removed" in tasks.problems()[0].text
        rows.gone = True
        assert tasks.problems() == ()

    run_virtually(main)

"""No object goes without a line of the audit, and none while the line can't be written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from kafka_formats.errors import RetryLater
from rlm.control.audit import AuditAction, AuditLine
from rlm.control.run_events import ignore_event
from rlm.control.segment_proposals import Proposals
from rlm.control.surroundings import CopyLimits, Identity, Surroundings
from rlm.delete.clean_up import CleanUp
from rlm.format.object_keys import segment_keys
from rlm.stores.tier_store import TierStore, TierStores
from rlmm.segment import RemoteLogSegmentMetadataUpdate, SegmentState
from rsm_backends.memory import MemoryStore
from tests.api.fakes import make_segment
from tests.rlm.planner_facts import ME
from tests.rlm.virtual_time import run_virtually, virtual_ambient

ROW = make_segment(0, SegmentState.DELETE_SEGMENT_STARTED)
KEYS = segment_keys("", ROW.segment_id, ROW.start_offset).all()


class Always:
    """Every proposal is accepted."""

    async def mark_deleted(
        self, update: RemoteLogSegmentMetadataUpdate, held_back: Callable[[], str | None]
    ) -> bool:
        return True

    async def finish_delete(self, update: RemoteLogSegmentMetadataUpdate) -> None:
        pass


async def _confirmed(tier: TierStore) -> None:
    """The prefix is ours."""


def test_the_line_is_kept_before_the_objects_go() -> None:
    async def main() -> None:
        ambient = virtual_ambient()
        store = MemoryStore(ambient.now_ms)
        for key in KEYS:
            await store.put(key, b"", crc32c=0)
        noted: list[AuditLine] = []
        there: list[int] = []
        disk_full = True

        async def keep(line: AuditLine) -> None:
            there.append(len((await store.list_page("")).objects))
            if disk_full:
                raise RetryLater("the disk is full")
            noted.append(line)

        clean_up = CleanUp(
            cast(Proposals, Always()),
            TierStores({"main": TierStore("main", store, "")}, "main"),
            Surroundings(Identity("cluster", None, ME), CopyLimits(), ambient),
            ignore_event,
            asyncio.Semaphore(1),
            lambda _: None,
            _confirmed,
            noted.append,
            keep,
        )
        with pytest.raises(RetryLater, match="full"):
            await clean_up.remove(ROW, 0, "marked deleted")
        disk_full = False
        assert await clean_up.mark(ROW, 5)
        await clean_up.remove(ROW, 0, "marked deleted")
        assert there == [len(KEYS), len(KEYS)]
        assert [(line.action, line.segment_id, line.why) for line in noted] == [
            (AuditAction.SEGMENT_MARKED, ROW.segment_id.id, "a copy that did not finish"),
            (AuditAction.OBJECTS_DELETED, ROW.segment_id.id, "marked deleted"),
        ]
        assert (await store.list_page("")).objects == ()

    run_virtually(main)

"""A segment of Aiven's plug-in is deleted where it is, or not at all: its row is all that is known
of its objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from kafka_formats.errors import Refused
from rlm.control.audit import AuditLine
from rlm.control.run_events import ignore_event
from rlm.control.segment_proposals import Proposals
from rlm.control.surroundings import CopyLimits, Identity, Surroundings
from rlm.delete.clean_up import CleanUp
from rlm.format.object_keys import segment_keys
from rlm.stores.tier_store import TierStore, TierStores
from rlmm.segment import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, SegmentState
from rsm_backends.memory import MemoryStore
from tests.api.fakes import make_segment
from tests.rlm.aiven_writer import custom_metadata
from tests.rlm.planner_facts import ME
from tests.rlm.virtual_time import run_virtually, virtual_ambient

ROW = make_segment(0, SegmentState.DELETE_SEGMENT_STARTED)


@dataclass
class Ended:
    """The rows whose deletion was recorded as finished."""

    rows: list[RemoteLogSegmentMetadataUpdate] = field(default_factory=list)

    async def finish_delete(self, update: RemoteLogSegmentMetadataUpdate) -> None:
        self.rows.append(update)


async def _confirmed(tier: TierStore) -> None:
    """The prefix is ours."""


async def removed(
    row: RemoteLogSegmentMetadata,
    stores: dict[str, str],
    held: Callable[[str], str | None],
    audited: list[AuditLine] | None = None,
) -> tuple[dict[str, int], int]:
    """The objects that each store has left of those under "aiven/" and "tier/", and the number of
    rows whose deletion is finished. `stores`: prefixes by name; `audited` gets the audit's lines.
    """

    async def keep(line: AuditLine) -> None:
        if audited is not None:
            audited.append(line)

    ambient = virtual_ambient()
    bucket = {name: MemoryStore(ambient.now_ms) for name in stores}
    for store in bucket.values():
        for prefix in ("aiven/", "tier/"):
            for key in segment_keys(prefix, row.segment_id, row.start_offset).all():
                await store.put(key, b"", crc32c=0)
    tiers = {name: TierStore(name, bucket[name], prefix) for name, prefix in stores.items()}
    ended = Ended()
    clean_up = CleanUp(
        cast(Proposals, ended),
        TierStores(tiers, next(iter(stores))),
        Surroundings(Identity("cluster", None, ME), CopyLimits(), ambient),
        ignore_event,
        asyncio.Semaphore(1),
        held,
        _confirmed,
        keep_audit=keep,
    )
    try:
        await clean_up.remove(row, 0, "marked deleted")
    finally:
        left = {name: len((await each.list_page("")).objects) for name, each in bucket.items()}
    return left, len(ended.rows)


def test_objects_under_a_prefix_that_no_store_has_keep_their_row() -> None:
    async def main() -> None:
        row = replace(ROW, custom_metadata=custom_metadata(prefix="aiven/"))
        audited: list[AuditLine] = []
        with pytest.raises(Refused, match=r"key prefix 'aiven/'.*add a \[stores.NAME\]"):
            await removed(row, {"main": "tier/"}, lambda _: None, audited)
        assert audited == [], "it is tried for ever, and nothing is deleted"

    run_virtually(main)


def test_only_the_stores_with_the_recorded_prefix_lose_objects() -> None:
    async def main() -> None:
        row = replace(ROW, custom_metadata=custom_metadata(prefix="aiven/"))
        stores = {"main": "tier/", "old": "aiven/"}
        assert await removed(row, stores, lambda _: None) == ({"main": 6, "old": 3}, 1)

    run_virtually(main)


@pytest.mark.parametrize("data", [None, b"", custom_metadata(size=7), b"of another manager's"])
def test_without_a_recorded_prefix_all_stores_may_have_them(data: bytes | None) -> None:
    async def main() -> None:
        row = replace(ROW, custom_metadata=data)
        stores = {"main": "tier/", "old": "aiven/"}
        assert await removed(row, stores, lambda _: None) == ({"main": 3, "old": 3}, 1)

    run_virtually(main)

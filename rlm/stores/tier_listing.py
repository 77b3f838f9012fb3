"""A store listed to its end, page by page: the one way in which garbage and gaps are looked for."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from kafka_formats.errors import RetryLater
from rlm.stores.tier_store import TierStore
from rsm_backends.store import ObjectInfo

LISTED_AT_ONCE = 1_000
PAGES_MAX = 1_000_000


async def listed_pages(tier: TierStore) -> AsyncGenerator[tuple[ObjectInfo, ...], None]:
    """All objects under the store's prefix, in key order. RetryLater: the store knows no end."""
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        page = await tier.store.list_page(tier.prefix, cursor=cursor, limit=LISTED_AT_ONCE)
        yield page.objects
        cursor = page.next_cursor
        if cursor is None:
            return
    raise RetryLater(f"the store {tier.name!r} lists without an end")

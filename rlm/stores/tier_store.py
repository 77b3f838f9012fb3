"""A named store as the remote log manager uses it: the port, and the prefix of its keys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass

from kafka_formats.errors import InvalidRequest, Refused, RetryLater
from rlmm.segment import RemoteLogSegmentId
from rsm_backends.store import KeptVersion, ObjectInfo, ObjectStore

LISTED_AT_ONCE = 1_000
PAGES_MAX = 1_000_000
KEY_VERSIONS_MAX = 10_000
"""The most versions of one key that are kept in memory; a key with more points to a mistake."""


@dataclass(frozen=True, slots=True)
class TierStore:
    """One entry of `[stores.NAME]`, opened. `prefix` starts every key."""

    name: str
    store: ObjectStore
    prefix: str


@dataclass(frozen=True, slots=True)
class TierStores:
    """All stores of this node. Copies go to `default`; segments name the store they are in."""

    by_name: Mapping[str, TierStore]
    default_name: str

    def __post_init__(self) -> None:
        if self.default_name not in self.by_name:
            raise InvalidRequest(
                f"{self.default_name!r} is not among [stores]: {sorted(self.by_name)}",
                field="default_store",
            )

    @property
    def default(self) -> TierStore:
        return self.by_name[self.default_name]

    @property
    def default_first(self) -> tuple[TierStore, ...]:
        """The stores that may have the objects of a row that names no store: all, the default one
        first. Keys contain the segment's id, so a lookup in a wrong store does no harm.
        """
        default = self.default
        return (default, *(each for each in self.by_name.values() if each is not default))

    def with_prefix(
        self, segment_id: RemoteLogSegmentId, object_prefix: str | None
    ) -> tuple[TierStore, ...]:
        """The stores that may have the objects of a segment whose row names no store.
        `object_prefix`: the prefix of its keys, None if unknown. Refused: no store has that prefix.
        """
        found = tuple(each for each in self.default_first if object_prefix in (None, each.prefix))
        if not found:
            raise Refused(
                f"segment {segment_id} was copied by Aiven's plug-in with the key prefix "
                f"{str(object_prefix)[:200]!r}, which no store of this node has: add a "
                "[stores.NAME] with it"
            )
        return found

    def named(self, name: str) -> TierStore:
        """The store that a segment's custom metadata names."""
        store = self.by_name.get(name)
        if store is None:
            raise Refused(
                f"a segment is in the store {name!r}, which this node does not have: add "
                f"[stores.{name}] to its settings (configured: {', '.join(sorted(self.by_name))})"
            )
        return store


async def listed_pages(
    tier: TierStore,
    prefix: str | None = None,
    *,
    limit: int = LISTED_AT_ONCE,
    pages_max: int = PAGES_MAX,
    deadline_s: float | None = None,
) -> AsyncGenerator[tuple[ObjectInfo, ...], None]:
    """All objects below `prefix` (None: the store's own), in pages of `limit`, in key order.
    RetryLater: more than `pages_max` pages, or one took longer than `deadline_s` (None: unbounded).
    """
    cursor: str | None = None
    for _ in range(pages_max):
        try:
            async with asyncio.timeout(deadline_s):
                page = await tier.store.list_page(
                    tier.prefix if prefix is None else prefix, cursor=cursor, limit=limit
                )
        except TimeoutError:
            raise RetryLater(
                f"the store {tier.name!r} did not answer within {deadline_s:g} s: its objects are "
                "not known yet"
            ) from None
        yield page.objects
        cursor = page.next_cursor
        if cursor is None:
            return
    raise RetryLater(
        f"the store {tier.name!r} lists {prefix or 'its objects'} without an end: check the store"
    )


async def kept_keys(
    tier: TierStore, prefix: str, *, deadline_s: float | None = None
) -> AsyncGenerator[tuple[KeptVersion, ...], None]:
    """All versions and delete markers of keys that start with `prefix`, in pages of whole keys.
    RetryLater: a page took longer than `deadline_s`, or the list or a key's versions do not end.
    """
    cursor: str | None = None
    carried: tuple[KeptVersion, ...] = ()
    for _ in range(PAGES_MAX):
        try:
            async with asyncio.timeout(deadline_s):
                page = await tier.store.versions_below(prefix, cursor=cursor)
        except TimeoutError:
            raise RetryLater(
                f"the store {tier.name!r} did not list versions within {deadline_s:g} s"
            ) from None
        found, cursor = (*carried, *page.versions), page.next_cursor
        if cursor is None:
            yield found
            return
        whole = len(found)
        while whole and found[whole - 1].key == found[-1].key:
            whole -= 1
        carried = found[whole:]
        if len(carried) > KEY_VERSIONS_MAX:
            break
        if whole:
            yield found[:whole]
    raise RetryLater(
        f"the store {tier.name!r} lists versions of {carried[0].key if carried else prefix!r} "
        "without an end: check the store"
    )

"""What stands in a bucket, found by stepping from folder to folder instead of listing every key."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from kafka_formats.errors import InvalidRequest, RetryLater
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.log_names import check_topic_name
from rlm.adoption_plan import StoredSegment, add_listed
from rlm.object_keys import parse_segment_key
from rlmm.segment import RemoteLogSegmentId
from rsm_backends.store import ObjectStore

PAGES_MAX = 1_000_000
_TOPIC_FOLDER = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<id>[A-Za-z0-9_-]{22})")


async def folders(
    store: ObjectStore,
    prefix: str,
    *,
    above: str = "",
    up_to: str | None = None,
    strays_max: int = PAGES_MAX,
) -> AsyncIterator[str]:
    """The folders right below `prefix`, in order, each with its slash: a request each. Folders
    start with `prefix`, which need not end with a slash; keys in none are stepped over, but ends
    behind `strays_max` of them. `above` (exclusive) and `up_to` bound what stands behind `prefix`.
    """
    cursor: str | None = prefix + above if above else None
    last = None if up_to is None else (prefix + up_to).encode()
    strays = 0
    for _ in range(PAGES_MAX):
        page = await store.list_page(prefix, cursor=cursor, limit=1)
        if not page.objects:
            return
        key = page.objects[0].key
        if last is not None and key.encode() > last:
            return
        name, slash, _ = key[len(prefix) :].partition("/")
        if slash:
            yield f"{prefix}{name}/"
            cursor = f"{prefix}{name}0"  # every key of the folder sorts below this
            continue
        cursor = key
        strays += 1
        if strays >= strays_max:
            return
    raise RetryLater(f"{PAGES_MAX} folders below {prefix!r}, and no end")


def topic_of_folder(prefix: str, folder: str) -> tuple[str, Uuid] | None:
    """Topic and topic id; None for another folder."""
    match = _TOPIC_FOLDER.fullmatch(folder[len(prefix) : -1])
    if match is None:
        return None
    try:
        check_topic_name(match["topic"])
        return match["topic"], Uuid.parse(match["id"])
    except InvalidRequest:
        return None


async def stored_segments(
    store: ObjectStore, store_name: str, prefix: str, folder: str
) -> list[StoredSegment]:
    """The segments of a partition's folder, whole or not; other objects are left out."""
    found: dict[RemoteLogSegmentId, StoredSegment] = {}
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        page = await store.list_page(folder, cursor=cursor)
        for each in page.objects:
            if (key := parse_segment_key(prefix, each.key)) is not None:
                add_listed(found, key, each.size, store_name)
        cursor = page.next_cursor
        if cursor is None:
            return list(found.values())
    raise RetryLater(f"{PAGES_MAX} pages of keys in {folder!r}, and no end")

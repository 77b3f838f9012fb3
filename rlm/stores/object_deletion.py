"""The one place where objects of segments are deleted from a store, whoever decided on it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from kafka_formats.errors import RetryLater
from rlm.stores.tier_store import TierStore


async def delete_objects(
    tier: TierStore,
    keys: Sequence[str],
    *,
    confirm_prefix: Callable[[TierStore], Awaitable[None]],
    held_back: Callable[[], str | None],
    deadline_s: float,
    what: str,
) -> None:
    """Abort the uploads of these keys and delete the objects; absent ones count as deleted.

    Uploads first: one that completed in between would leave an object behind. Refused (by
    `confirm_prefix`): the prefix is another cluster's, nothing was touched. RetryLater: the
    deadline passed, or `held_back`, asked last because the other steps take time, forbids it; the
    call may be repeated. `what` names the objects in messages.
    """
    try:
        # One deadline for all: nothing is deleted long after the marker was read.
        async with asyncio.timeout(deadline_s):
            await confirm_prefix(tier)
            for key in keys:
                for upload_id in await tier.store.list_uploads(key):
                    await tier.store.abort_multipart(key, upload_id)
            why_not = held_back()
            if why_not is not None:
                raise RetryLater(f"nothing is deleted now: {why_not}")
            await tier.store.delete_many(keys)
    except TimeoutError:
        raise RetryLater(
            f"deleting {what} in the store {tier.name!r} took longer than {deadline_s:g} s"
        ) from None

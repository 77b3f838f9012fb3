"""How objects of segments leave a store: the one place, whoever decided that they may."""

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

    Uploads first: one that completed in between would leave an object behind the delete. Refused
    (of `confirm_prefix`): the prefix is another cluster's, nothing was touched. RetryLater: not
    within the deadline, or `held_back` says why nothing may be deleted now (asked last of all: the
    steps before it take time); it may be repeated. `what` names the objects in that message.
    """
    try:
        # One deadline for both: nothing is deleted long after the marker was looked at.
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

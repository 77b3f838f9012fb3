"""The one place where the objects of segments are deleted from a store, for every caller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from kafka_formats.errors import InvalidRequest, Refused, RetryLater
from rlm.stores.tier_store import TierStore
from rsm_backends.store import KeptVersion

VERSIONS_AT_ONCE = 16


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

    Uploads are aborted first: one that completed after the delete would leave an object. Refused
    (by `confirm_prefix`): the prefix is a different cluster's, nothing was deleted. RetryLater: the
    deadline passed, or `held_back`, called last because the other steps take time, returned a
    reason; the call may be repeated. `what` names the objects in messages.
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


async def delete_versions(
    tier: TierStore,
    versions: Sequence[KeptVersion],
    *,
    confirm_prefix: Callable[[TierStore], Awaitable[None]],
    held_back: Callable[[], str | None],
    deadline_s: float,
    what: str,
) -> dict[KeptVersion, str]:
    """Delete these versions and delete markers for good; returns those that the store refuses to
    delete, with its reason. Errors as in `delete_objects`.

    Pass all versions of a key: its delete markers are deleted last, and only if no version remains,
    since a version whose marker is deleted becomes readable again.
    """
    refused: dict[KeptVersion, str] = {}

    async def delete(each: KeptVersion) -> None:
        try:
            await tier.store.delete_version(each.key, each.version_id)
        except (Refused, InvalidRequest) as error:
            refused[each] = str(error)

    try:
        async with asyncio.timeout(deadline_s):
            await confirm_prefix(tier)
            for markers in (False, True):
                uncovered = {each.key for each in refused}
                going = [each for each in versions if each.is_marker is markers]
                stay = [each for each in going if markers and each.key in uncovered]
                refused |= dict.fromkeys(stay, "it hides a version that could not be deleted")
                going = [each for each in going if each not in refused]
                for at in range(0, len(going), VERSIONS_AT_ONCE):
                    why_not = held_back()
                    if why_not is not None:
                        raise RetryLater(f"nothing is deleted now: {why_not}")
                    some = map(delete, going[at : at + VERSIONS_AT_ONCE])
                    for error in await asyncio.gather(*some, return_exceptions=True):
                        if error is not None:
                            raise error
    except TimeoutError:
        raise RetryLater(
            f"deleting {what} in the store {tier.name!r} took longer than {deadline_s:g} s"
        ) from None
    return refused

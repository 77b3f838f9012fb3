"""Stores that an erasure can't look at: the settings of its node lack them, and versions may be
there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from rlm.stores.store_usage import NOT_OURS, store_usage
from rlmm.manager.metadata_reads import MetadataReads

OF_THE_SCOPE = "it has segments of the scope, and this node's settings do not have it"
OF_OTHERS = (
    "it has segments, and this node's settings do not have it: old versions of the scope may be "
    "there, too. Ask for the erasure at a node that has it"
)


async def unseen_stores(
    metadata: MetadataReads, seen: Collection[str], breathe: Callable[[], Awaitable[None]]
) -> dict[str, str]:
    """The stores that any segment names, by the reason to miss them. Rows of the scope are gone by
    now, and with them the name of their store.
    """
    usage = await store_usage(metadata, breathe)
    return {name: OF_OTHERS for name in usage if name not in seen and name != NOT_OURS}

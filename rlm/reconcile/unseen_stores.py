"""Stores that an erasure can't look at: the settings of its node lack them, and versions may be
there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field

from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.reconcile.erasure_plan import Scope
from rlm.stores.store_usage import NOT_OURS, store_usage
from rlmm.manager.metadata_reads import MetadataReads

OF_THE_SCOPE = "it has segments of the scope, and this node's settings do not have it"
OF_OTHERS = (
    "it has segments, and this node's settings do not have it: old versions of the scope may be "
    "there, too. Ask for the erasure at a node that has it"
)
OF_THE_SCOPE_BEFORE = (
    "it had segments of the scope when an erasure at this node counted them, and this node's "
    "settings do not have it: old versions may be there. Ask for the erasure at a node that has "
    "it; this node tells of it until it is restarted"
)
REMEMBERED_MAX = 10_000
"""Partitions that are remembered with their stores; the first ones are forgotten first."""


@dataclass(slots=True)
class StoresOfErased:
    """Stores that the settings lack, of segments that erasures counted: once these are gone no row
    names the store. Settings are read at the start, so a restart ends what is remembered.
    """

    _stores: dict[TopicIdPartition, dict[str, None]] = field(default_factory=dict)

    def note(self, tip: TopicIdPartition, store: str) -> None:
        """Remember a segment's store."""
        self._stores.setdefault(tip, {})[store] = None
        if len(self._stores) > REMEMBERED_MAX:
            del self._stores[next(iter(self._stores))]

    def of(self, scope: Scope) -> dict[str, str]:
        """The stores of the scope's partitions, by the reason to miss them."""
        return {
            name: OF_THE_SCOPE_BEFORE
            for tip, stores in self._stores.items()
            if scope.has(tip)
            for name in stores
        }


async def unseen_stores(
    metadata: MetadataReads, seen: Collection[str], breathe: Callable[[], Awaitable[None]]
) -> dict[str, str]:
    """The stores that any segment names, by the reason to miss them. Rows of the scope are gone by
    now, and with them the name of their store.
    """
    usage = await store_usage(metadata, breathe)
    return {name: OF_OTHERS for name in usage if name not in seen and name != NOT_OURS}

"""Finds stores that an erasure can't sweep, since its node's settings lack them; versions may be
left there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field

from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.reconcile.erasure_plan import Scope
from rlm.stores.store_usage import NOT_OURS, store_usage
from rlmm.manager.metadata_reads import MetadataReads

OF_THE_SCOPE = "it has segments of the scope, but is not in this node's settings"
OF_OTHERS = (
    "it has segments, but is not in this node's settings: old versions of the scope may be there, "
    "too. Request the erasure at a node that has the store"
)
OF_THE_SCOPE_BEFORE = (
    "it had segments of the scope in an earlier erasure at this node, but is not in this node's "
    "settings: old versions may be there. Request the erasure at a node that has the store; this "
    "node reports it until it is restarted"
)
REMEMBERED_MAX = 10_000
"""Limit of the partitions that are remembered with their stores; the oldest are forgotten first."""


@dataclass(slots=True)
class StoresOfErased:
    """The stores of segments that erasures counted, if the settings lack them: after the segments
    are deleted, no row has the store's name any more. They are forgotten at a restart, which also
    reads the settings again.
    """

    _stores: dict[TopicIdPartition, dict[str, None]] = field(default_factory=dict)

    def note(self, tip: TopicIdPartition, store: str) -> None:
        """Remember a segment's store."""
        self._stores.setdefault(tip, {})[store] = None
        if len(self._stores) > REMEMBERED_MAX:
            del self._stores[next(iter(self._stores))]

    def of(self, scope: Scope) -> dict[str, str]:
        """The remembered stores of the scope's partitions, each with the text to report."""
        return {
            name: OF_THE_SCOPE_BEFORE
            for tip, stores in self._stores.items()
            if scope.has(tip)
            for name in stores
        }


async def unseen_stores(
    metadata: MetadataReads, seen: Collection[str], breathe: Callable[[], Awaitable[None]]
) -> dict[str, str]:
    """The stores with segments that are not in `seen`, each with the text to report. The rows of
    the scope, which would name their stores, are deleted by now.
    """
    usage = await store_usage(metadata, breathe)
    return {name: OF_OTHERS for name in usage if name not in seen and name != NOT_OURS}

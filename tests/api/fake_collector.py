"""A collector whose passes end at once."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_formats.errors import Conflict, NotFound
from kafka_formats.kafka_uuid import Uuid
from rlm.reconcile.collection_plan import Known, ObjectClass
from rlm.reconcile.collector import Collection, CollectionRequest, CollectionState, Collector
from rlmm.segment import RemoteLogSegmentId
from rsm_backends.store import ObjectInfo

JOB_ID = Uuid(b"a-collection-id-")


class FakeCollector(Collector):
    """As `rlm.reconcile.collector.Collector`."""

    def __init__(self, *, runs: bool = False, known: dict[Uuid, Known] | None = None) -> None:
        self.last: Collection | None = None
        self.runs = runs
        self.known = known or {}

    def start(self, request: CollectionRequest, by: str, /) -> Collection:
        if self.runs:
            raise Conflict("a collection is running", reason="RUNNING")
        self.last = Collection(JOB_ID, request, by, 1_000, CollectionState.FINISHED, 2_000)
        self.last.found[ObjectClass.ORPHAN].add("main", ObjectInfo("tier/x", 7, None, None, ""))
        self.last.listed = 1
        return self.last

    def collection(self, id_: Uuid, /) -> Collection:
        if self.last is None or self.last.id != id_:
            raise NotFound(f"no collection {id_}")
        return self.last

    async def look_up(self, ids: Sequence[RemoteLogSegmentId], /) -> list[Known]:
        return [self.known.get(each.id, Known()) for each in ids]

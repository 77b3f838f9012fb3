"""Erasures that end at once."""

from __future__ import annotations

from kafka_formats.errors import Conflict, NotFound
from kafka_formats.kafka_uuid import Uuid
from rlm.reconcile.collection_plan import ObjectClass
from rlm.reconcile.erasure import (
    Erasure,
    Erasures,
    LeftObject,
    StoreErasure,
)
from rlm.reconcile.erasure_request import ErasureRequest, ErasureState
from tests.api.fake_collector import JOB_ID

ERASURE_ID = JOB_ID


class FakeErasures(Erasures):
    """As `rlm.reconcile.erasure.Erasures`."""

    def __init__(self, *, runs: bool = False, ordered: bool = True) -> None:
        self.last: Erasure | None = None
        self.runs = runs
        self.ordered = ordered

    async def start(self, request: ErasureRequest, by: str, /) -> Erasure:
        if self.runs:
            raise Conflict("an erasure is running", reason="RUNNING")
        if not self.ordered and request.apply:
            raise Conflict("orders-0 is not being deleted", reason="NOT_ORDERED")
        left = LeftObject("main", "tier/x.log", "v1", "not allowed (AccessDenied)")
        self.last = Erasure(
            ERASURE_ID, request, by, 1_000, ErasureState.INCOMPLETE, 2_000, "1 version is left",
            segments=2, size_bytes=40, kept_to_offset=19,
            stores={"main": StoreErasure(3, 3, 1, 40, {ObjectClass.LIVE: 3})},
            gone_count=1, gone=["main:tier/y.log"], left_count=1, left=[left],
        )  # fmt: skip
        return self.last

    def erasure(self, id_: Uuid, /) -> Erasure:
        if self.last is None or self.last.id != id_:
            raise NotFound(f"no erasure {id_}")
        return self.last

"""Jobs of this node: collecting garbage."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictBool, StrictInt

from api.http.validation import INT64_MAX
from api.models.base import IdText, NullBelowZero, Wire
from rlm.reconcile.collection_plan import ObjectClass
from rlm.reconcile.collector import Collection, CollectionRequest, CollectionState


class CollectRequest(Wire):
    """The permissions of a collection."""

    apply: Annotated[StrictBool, Field(description="False: delete nothing.")] = False
    accept_objects: Annotated[
        StrictInt,
        Field(
            ge=0,
            le=INT64_MAX,
            description="The most orphans that may be deleted, whatever share of the objects "
            "they are.",
        ),
    ] = 0

    def request(self) -> CollectionRequest:
        return CollectionRequest(self.apply, self.accept_objects)


class CountView(Wire):
    """Objects of a class; `examples` are the first few, as store and key."""

    objects: int
    size_bytes: int
    examples: list[str]


class TallyView(Wire):
    """Objects of a class in one store."""

    objects: int
    size_bytes: int


class CollectionView(Wire):
    """One collection over all stores. `stopped`: it found more orphans than may be deleted
    at once.
    """

    id: IdText
    by: str
    apply: bool
    accept_objects: int
    state: CollectionState
    text: str
    started_at_ms: int
    ended_at_ms: Annotated[int | None, NullBelowZero]
    listed: Annotated[int, Field(description="Objects listed so far.")]
    found: Annotated[
        dict[ObjectClass, CountView],
        Field(
            description="`live`, `copy_pending`, `delete_pending` (its delay has not passed): "
            "kept. `orphan`: an object of a deleted segment, is deleted. `foreign`: unknown to "
            "the metadata log, never deleted. `own`: the cluster marker and snapshots."
        ),
    ]
    stores: Annotated[
        dict[str, dict[ObjectClass, TallyView]],
        Field(description="The same by store, without empty classes."),
    ]
    deleted: CountView
    held_back: Annotated[
        dict[str, int], Field(description="Orphans that are not deleted yet, by reason.")
    ]

    @classmethod
    def of_job(cls, job: Collection) -> CollectionView:
        """The view of a collection and its request."""
        return cls.of(
            job,
            apply=job.request.apply,
            accept_objects=job.request.accept_objects,
            stores=job.by_store,
        )

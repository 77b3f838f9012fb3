"""Jobs of this node: collecting garbage."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictBool, StrictInt

from api.http.validation import INT64_MAX
from api.models.base import IdText, NullBelowZero, Wire
from rlm.reconcile.collection_plan import ObjectClass
from rlm.reconcile.collector import Collection, CollectionRequest, CollectionState


class CollectRequest(Wire):
    """Permissions of a pass."""

    apply: Annotated[StrictBool, Field(description="False: delete nothing.")] = False
    accept_objects: Annotated[
        StrictInt,
        Field(
            ge=0,
            le=INT64_MAX,
            description="Allow this many orphans to be deleted, whatever share that is.",
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
    """One pass over all stores. `stopped`: there was more than may go at once."""

    id: IdText
    by: str
    apply: bool
    accept_objects: int
    state: CollectionState
    text: str
    started_at_ms: int
    ended_at_ms: Annotated[int | None, NullBelowZero]
    listed: Annotated[int, Field(description="Objects looked at so far.")]
    found: Annotated[
        dict[ObjectClass, CountView],
        Field(
            description="`live`, `copy_pending`, `delete_pending` (its delay is not over): kept. "
            "`orphan`: of a deleted segment, deleted. `foreign`: the log never knew it, never "
            "touched. `own`: the cluster marker and snapshots."
        ),
    ]
    stores: Annotated[
        dict[str, dict[ObjectClass, TallyView]],
        Field(description="The same by store, without empty classes."),
    ]
    deleted: CountView
    held_back: Annotated[dict[str, int], Field(description="Orphans that stay for now, by reason.")]

    @classmethod
    def of_job(cls, job: Collection) -> CollectionView:
        """A pass, and what was asked of it."""
        return cls.of(
            job,
            apply=job.request.apply,
            accept_objects=job.request.accept_objects,
            stores=job.by_store,
        )

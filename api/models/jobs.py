"""Jobs of this node: collecting garbage."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictBool, StrictInt

from api.http.validation import INT64_MAX
from api.models.base import Wire, known
from rlm.reconcile.collection_plan import ObjectClass
from rlm.reconcile.collector import Collection, CollectionRequest, CollectionState, Count


class CollectRequest(Wire):
    """What a pass may do."""

    apply: Annotated[StrictBool, Field(description="False: only look.")] = False
    accept_objects: Annotated[
        StrictInt,
        Field(ge=0, le=INT64_MAX, description="So many orphans may go, whatever part that is."),
    ] = 0

    def request(self) -> CollectionRequest:
        """Map."""
        return CollectionRequest(self.apply, self.accept_objects)


class CountView(Wire):
    """Objects of a class; `examples` are the first few, as store and key."""

    objects: int
    size_bytes: int
    examples: list[str]

    @classmethod
    def of(cls, count: Count) -> CountView:
        """Map."""
        return cls(objects=count.objects, size_bytes=count.size_bytes, examples=count.examples)


class TallyView(Wire):
    """Objects of a class in one store."""

    objects: int
    size_bytes: int


class CollectionView(Wire):
    """One pass over all stores. `stopped`: there was more than may go at once."""

    id: str
    by: str
    apply: bool
    accept_objects: int
    state: CollectionState
    text: str
    started_at_ms: int
    ended_at_ms: int | None
    listed: Annotated[int, Field(description="Objects looked at so far.")]
    found: Annotated[
        dict[ObjectClass, CountView],
        Field(
            description="`live`, `copy_pending`, `delete_pending` (its delay is not over): stay. "
            "`orphan`: of a deleted segment, goes. `foreign`: the log never knew it, never "
            "touched. `own`: the cluster marker and snapshots."
        ),
    ]
    stores: Annotated[
        dict[str, dict[ObjectClass, TallyView]],
        Field(description="The same by store; classes of which it has nothing are left out."),
    ]
    deleted: CountView
    held_back: Annotated[dict[str, int], Field(description="Orphans that stay for now, by reason.")]

    @classmethod
    def of(cls, job: Collection) -> CollectionView:
        """Map."""
        return cls(
            id=str(job.id),
            by=job.by,
            apply=job.request.apply,
            accept_objects=job.request.accept_objects,
            state=job.state,
            text=job.text,
            started_at_ms=job.started_at_ms,
            ended_at_ms=known(job.ended_at_ms),
            listed=job.listed,
            found={each: CountView.of(count) for each, count in job.found.items()},
            stores={
                name: {
                    each: TallyView(objects=tally.objects, size_bytes=tally.size_bytes)
                    for each, tally in tallies.items()
                }
                for name, tallies in job.by_store.items()
            },
            deleted=CountView.of(job.deleted),
            held_back=dict(job.held_back),
        )

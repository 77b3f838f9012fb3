"""Erasures: they delete every version that a store keeps of deleted segments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr

from api.http.validation import INT32_MAX, INT64_MAX, parse_uuid
from api.models.base import IdText, NullBelowZero, Wire
from api.models.gaps import Reason
from kafka_formats.errors import InvalidRequest
from kafka_formats.log_names import check_topic_name
from rlm.reconcile.collection_plan import ObjectClass
from rlm.reconcile.erasure import Erasure
from rlm.reconcile.erasure_plan import Scope
from rlm.reconcile.erasure_request import ErasureRequest, ErasureState

DEADLINE_S = 3_600.0
DEADLINE_S_MAX = 7 * 86_400.0


class EraseRequest(Wire):
    """Start an erasure: of a topic that is being deleted, or below an offset that the log start has
    passed.
    """

    topic: Annotated[StrictStr, Field(min_length=1, max_length=249)]
    topic_id: Annotated[
        StrictStr | None,
        Field(
            max_length=100,
            description="Null: all topic ids of this name, with all their partitions.",
        ),
    ] = None
    partition: Annotated[StrictInt | None, Field(ge=0, le=INT32_MAX)] = None
    before_offset: Annotated[
        StrictInt | None,
        Field(ge=0, le=INT64_MAX, description="Only segments that end below; needs `partition`."),
    ] = None
    reason: Reason
    dry_run: StrictBool = True
    deadline_s: Annotated[
        StrictFloat | StrictInt,
        Field(
            gt=0,
            le=DEADLINE_S_MAX,
            description="Objects that still exist after this time are listed in `left`.",
        ),
    ] = DEADLINE_S

    def request(self, elsewhere: Mapping[str, str]) -> ErasureRequest:
        """Parse the scope. InvalidRequest: an erasure can't have this scope."""
        check_topic_name(self.topic)
        if (self.partition is None) != (self.before_offset is None):
            raise InvalidRequest(
                "give both partition and before_offset, or neither: a topic is erased as a whole",
                field="partition",
            )
        if self.partition is not None and self.topic_id is None:
            raise InvalidRequest("give topic_id, too: a partition needs it", field="topic_id")
        topic_id = None if self.topic_id is None else parse_uuid(self.topic_id, "topic_id")
        scope = Scope(self.topic, topic_id, self.partition, self.before_offset)
        deadline_s = float(self.deadline_s)
        return ErasureRequest(scope, not self.dry_run, deadline_s, self.reason, elsewhere)


class LeftObjectView(Wire):
    """An object, or one version of it, that is still in a store, and why."""

    store: str
    key: str
    version_id: str | None
    why: str


class StoreErasureView(Wire):
    """Deletions in one store; for a dry run, the deletions that it would make."""

    objects: Annotated[int, Field(description="Objects deleted; versions of them may remain.")]
    versions: Annotated[int, Field(description="Versions deleted for good.")]
    markers: Annotated[int, Field(description="Delete markers, deleted for good.")]
    size_bytes: int
    kept: Annotated[
        dict[ObjectClass, int], Field(description="Keys in the scope that are kept, by class.")
    ]
    trouble: Annotated[str | None, Field(description="Why the store was not listed completely.")]
    versions_unknown: Annotated[str | None, Field(description="Why no versions were listed.")]


class ErasureView(Wire):
    """An erasure. `incomplete`: objects are left, or a store was not listed completely; `failed`:
    no store was. Repeat the request in both cases.
    """

    id: IdText
    by: str
    topic: str
    topic_id: IdText | None
    partition: int | None
    before_offset: int | None
    dry_run: bool
    state: ErasureState
    text: str
    started_at_ms: int
    ended_at_ms: Annotated[int | None, NullBelowZero]
    segments: Annotated[int, Field(description="Segments in the scope when the erasure began.")]
    size_bytes: int
    waiting: Annotated[int, Field(description="Segments of these that are not deleted yet.")]
    kept_to_offset: Annotated[
        int | None,
        NullBelowZero,
        Field(
            description="The segment that contains `before_offset` is kept; this is its last "
            "offset (inclusive)."
        ),
    ]
    stores: dict[str, StoreErasureView]
    gone_count: Annotated[
        int,
        Field(
            description="Keys that no listing shows any more; at most a hundred thousand are "
            "counted."
        ),
    ]
    gone: Annotated[
        list[str], Field(description="The first thousand of these keys, as store and key.")
    ]
    left_count: int
    left: Annotated[list[LeftObjectView], Field(description="The first thousand of these objects.")]

    @classmethod
    def of_job(cls, job: Erasure) -> Self:
        """The view of an erasure and its scope."""
        scope = job.request.scope
        return cls.of(
            job,
            topic=scope.topic,
            topic_id=scope.topic_id,
            partition=scope.partition,
            before_offset=scope.before,
            dry_run=not job.request.apply,
        )

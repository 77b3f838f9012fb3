"""Erasures: the end of what was deleted, with every version that a store keeps."""

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
    """End an erasure: of a topic that is being deleted, or below an offset that the log start has
    passed.
    """

    topic: Annotated[StrictStr, Field(min_length=1, max_length=249)]
    topic_id: Annotated[
        StrictStr | None,
        Field(max_length=100, description="Null: all topics of this name, of each all partitions."),
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
        Field(gt=0, le=DEADLINE_S_MAX, description="What is left then is told as left."),
    ] = DEADLINE_S

    def request(self, elsewhere: Mapping[str, str]) -> ErasureRequest:
        """The scope, parsed. InvalidRequest: not one that a job takes."""
        check_topic_name(self.topic)
        if (self.partition is None) != (self.before_offset is None):
            raise InvalidRequest(
                "give the partition and before_offset, or neither: a topic goes as a whole",
                field="partition",
            )
        if self.partition is not None and self.topic_id is None:
            raise InvalidRequest("a partition's topic needs its topic_id", field="topic_id")
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
    """Deletions in one store; of a dry run, those that it would make."""

    objects: Annotated[int, Field(description="Deleted as objects; versions of them may stay.")]
    versions: Annotated[int, Field(description="Deleted for good.")]
    markers: Annotated[int, Field(description="Delete markers, deleted for good.")]
    size_bytes: int
    kept: Annotated[
        dict[ObjectClass, int], Field(description="Keys of the scope that stay, by class.")
    ]
    trouble: Annotated[str | None, Field(description="Why it was not looked at to the end.")]
    versions_unknown: Annotated[str | None, Field(description="Why no versions were listed.")]


class ErasureView(Wire):
    """An erasure. `incomplete`: something is left, or was not looked at; `failed`: nothing was.
    Both: ask for it again.
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
    segments: Annotated[int, Field(description="Of the scope, when it began.")]
    size_bytes: int
    waiting: Annotated[int, Field(description="Of these, segments that are not gone yet.")]
    kept_to_offset: Annotated[
        int | None,
        NullBelowZero,
        Field(
            description="The segment that `before_offset` lies in ends here (inclusive), and stays."
        ),
    ]
    stores: dict[str, StoreErasureView]
    gone_count: Annotated[
        int, Field(description="Keys that no list shows any more; a hundred thousand are counted.")
    ]
    gone: Annotated[list[str], Field(description="The first thousand, as store and key.")]
    left_count: int
    left: Annotated[list[LeftObjectView], Field(description="The first thousand.")]

    @classmethod
    def of_job(cls, job: Erasure) -> Self:
        """An erasure, and its scope."""
        scope = job.request.scope
        return cls.of(
            job,
            topic=scope.topic,
            topic_id=scope.topic_id,
            partition=scope.partition,
            before_offset=scope.before,
            dry_run=not job.request.apply,
        )

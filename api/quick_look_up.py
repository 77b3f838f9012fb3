"""The most frequent request, the look-up of a segment, answered before FastAPI.

FastAPI resolves dependencies again for every request, a third of a look-up's cost. Here the route's
own functions are called in FastAPI's order. A request with an invalid parameter goes to FastAPI's
route before any of them is called, so that only one place refuses requests.
`tests/api/test_quick_look_up.py` compares the answers of both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastapi.requests import Request
from pydantic import TypeAdapter, ValidationError
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import ASGIApp, Receive, Scope, Send

from api.http.admission import MIN_OFFSET_HEADER, MinOffset, bearer, require, wished_offset
from api.http.tokens import Role
from api.http.validation import EpochNumber, OffsetNumber, PartitionNumber, TopicName
from api.models.segments import SegmentLookup
from api.routes.path_parameters import TopicIdParameter, found_partition
from api.routes.segments import look_up_segment

PATH = "/v1/topics/{topic}/partitions/{partition}/segments/lookup"

_topic: TypeAdapter[str] = TypeAdapter(TopicName)
_partition: TypeAdapter[int] = TypeAdapter(PartitionNumber)
_topic_id: TypeAdapter[str | None] = TypeAdapter(TopicIdParameter)
_epoch: TypeAdapter[int] = TypeAdapter(EpochNumber)
_offset: TypeAdapter[int] = TypeAdapter(OffsetNumber)
_with_txn_index: TypeAdapter[bool] = TypeAdapter(bool)
_min_offset: TypeAdapter[int | None] = TypeAdapter(MinOffset)
_answer: TypeAdapter[SegmentLookup] = TypeAdapter(SegmentLookup)

_MISSING: Final = object()
"""A value that no parameter accepts, so that a missing parameter is treated as an invalid one."""


class QuickLookUp:
    """An ASGI layer before `app`, which answers all other requests."""

    def __init__(self, app: ASGIApp) -> None:
        self.general = app
        self._match = compile_path(PATH)[0].match
        self._admit = require(Role.READ)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or let `app` answer."""
        found = self._match(scope["path"]) if scope["type"] == "http" else None
        if found is not None and scope["method"] == "GET":
            request = Request(scope, receive, send)
            try:
                arguments = _arguments(found.groupdict(), request)
            except ValidationError:
                pass
            else:
                answer = await self._answer(request, *arguments)
                content = _answer.dump_json(answer, by_alias=True)
                await Response(content, media_type="application/json")(scope, receive, send)
                return
        await self.general(scope, receive, send)

    async def _answer(
        self,
        request: Request,
        partition: Mapping[str, Any],
        question: Mapping[str, Any],
        min_offset: int | None,
    ) -> SegmentLookup:
        await self._admit(request, await bearer(request))
        await wished_offset(request, min_offset)
        return await look_up_segment(
            request, await found_partition(request, **partition), **question
        )


def _arguments(
    path: Mapping[str, str], request: Request
) -> tuple[dict[str, Any], dict[str, Any], int | None]:
    """The arguments of `found_partition`, `look_up_segment` and `wished_offset`. ValidationError:
    one is invalid.
    """
    query = request.query_params
    partition = {
        "topic": _topic.validate_python(path["topic"]),
        "partition": _partition.validate_python(path["partition"]),
        "topic_id": _topic_id.validate_python(query.get("topic_id")),
    }
    question = {
        "epoch": _epoch.validate_python(query.get("epoch", _MISSING)),
        "offset": _offset.validate_python(query.get("offset", _MISSING)),
        "with_txn_index": _with_txn_index.validate_python(query.get("with_txn_index", False)),
    }
    return partition, question, _min_offset.validate_python(request.headers.get(MIN_OFFSET_HEADER))

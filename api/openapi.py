"""The OpenAPI document: FastAPI's, with Strandline's problem documents for errors."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from api.http.errors import PROBLEM_KINDS, PROBLEM_MEDIA_TYPE
from api.http.gate import METADATA_OFFSET_HEADER, REQUEST_ID_HEADER
from api.http.route_table import writes
from api.models.base import ProblemDocument

_DESCRIPTION = """\
Remote log segments of one Kafka cluster: metadata, status, and the bytes.

Every error is a problem document (RFC 9457); decide by its `kind`. Every answer under `/v1` has the
metadata offset as of which it is valid; a request may require a minimum. Every GET answers HEAD
too. Unknown query parameters are refused.
"""
_EVERYWHERE = ("invalid_request", "internal", "retry_later")
_WITH_TOKEN = ("unauthenticated", "refused")
_WITH_BODY = ("body_too_large", "request_timeout")
_OF_ONE_NODE = (
    "add_voter", "remove_voter", "transfer_", "finalise_feature_level", "can_stop", "skip_",
    "accept_retention", "delete_records",
)  # fmt: skip
"""Operations that only the quorum's leader or a partition's node carries out; any other node
forwards them.
"""


def build_openapi(app: FastAPI) -> dict[str, Any]:
    """The document."""
    document = get_openapi(
        title="Strandline",
        version=app.version,
        summary="Remote log manager for Kafka tiered storage",
        description=_DESCRIPTION,
        routes=app.routes,
    )
    schemas = document["components"]["schemas"]
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    problem = ProblemDocument.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas["ProblemDocument"] = problem
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            in_v1 = path.startswith("/v1/")
            _finish(operation, in_v1=in_v1, changes=writes(method.upper(), path))
    return document


def _finish(operation: dict[str, Any], *, in_v1: bool, changes: bool) -> None:
    """Add the problems that any route may answer, and the common headers."""
    for parameter in operation.get("parameters", ()):
        _without_null(parameter["schema"])
    responses = operation["responses"]
    responses.pop("422", None)
    kinds = list(_EVERYWHERE)
    if any(parameter["in"] == "path" for parameter in operation.get("parameters", ())):
        kinds.append("not_found")
    if "security" in operation:
        kinds += _WITH_TOKEN
    if "requestBody" in operation:
        kinds += _WITH_BODY
    if changes:
        kinds += ["conflict", "outcome_unknown"]
    if operation["operationId"].startswith(("transfer_", "can_stop")):
        kinds += ["not_found", "conflict"]
    if operation["operationId"].startswith(_OF_ONE_NODE):
        responses["307"] = {
            "description": "A different node has to do this, and this node can't reach it."
        }
    if "contents" in operation["tags"]:
        kinds.append("corrupt_data")
    if operation["operationId"].startswith(("leader_transition", "follower_fetch")):
        kinds.append("fenced")
    for kind in kinds:
        status = str(PROBLEM_KINDS[kind].status)
        responses.setdefault(status, {"description": kind})
    for status, response in responses.items():
        headers = {
            REQUEST_ID_HEADER: _header("string", "The id of this request in the node's log.")
        }
        if in_v1:
            headers[METADATA_OFFSET_HEADER] = _header(
                "integer", "The answer reflects all records up to this metadata offset."
            )
        response["headers"] = headers
        if status == "307":
            headers["Location"] = _header("string", "The URL of the same request at that node.")
        if int(status) >= 300:
            reference = {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}
            response["content"] = {PROBLEM_MEDIA_TYPE: reference}
    operation["responses"] = dict(sorted(responses.items()))


def _without_null(schema: dict[str, Any]) -> None:
    """Remove null from a parameter's schema: it can be left out, but not null."""
    options = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if len(options) == 1:
        del schema["anyOf"]
        schema.update(options[0])


def _header(kind: str, description: str) -> dict[str, Any]:
    return {"description": description, "schema": {"type": kind}}

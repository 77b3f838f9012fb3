"""The one table: every kind has a status, a title and a Java exception."""

from __future__ import annotations

import json

import pytest

from api.http.errors import (
    HTTP_LAYER_KINDS,
    PROBLEM_KINDS,
    http_problem,
    internal_problem,
    problem_of,
)
from kafka_formats.errors import (
    Conflict,
    CorruptData,
    InternalError,
    InvalidRequest,
    NotFound,
    RetryLater,
    StrandlineError,
)
from tests.api.fakes import BASE, make_node
from tests.every_error import EVERY_ERROR


def all_kinds(root: type[StrandlineError]) -> set[str]:
    """The kinds of a class and everything below it."""
    below = (all_kinds(child) for child in root.__subclasses__())
    return {root.kind}.union(*below)


STATUSES = {
    "retry_later": 503,
    "outcome_unknown": 504,
    "fenced": 409,
    "not_found": 404,
    "conflict": 409,
    "already_exists": 409,
    "invalid_request": 400,
    "corrupt_data": 502,
    "refused": 403,
    "internal": 500,
}


def test_every_kind_of_the_tree_is_in_the_table() -> None:
    assert all_kinds(StrandlineError) <= set(PROBLEM_KINDS)
    assert {error.kind for error in EVERY_ERROR} == set(STATUSES) == all_kinds(StrandlineError)


def test_every_row_is_complete_and_refusals_of_the_http_layer_have_a_status_each() -> None:
    of_tree = all_kinds(StrandlineError)
    of_http = [row for row in PROBLEM_KINDS.values() if row.kind not in of_tree]
    assert len({row.status for row in of_http}) == len(of_http) == len(HTTP_LAYER_KINDS)
    for row in PROBLEM_KINDS.values():
        assert 400 <= row.status <= 599
        assert row.title
        assert row.java_exception.endswith("Exception")


@pytest.mark.parametrize("error", EVERY_ERROR, ids=lambda error: error.kind)
async def test_every_error_becomes_its_problem_document(error: StrandlineError) -> None:
    node = make_node()
    node.manager.error = error
    async with node.client() as client:
        answer = await client.get(BASE)
    problem = answer.json()
    assert answer.status_code == problem["status"] == STATUSES[error.kind]
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["kind"] == error.kind
    assert problem["type"] == f"urn:strandline:problem:{error.kind}"
    request_id = answer.headers["Strandline-Request-Id"]
    assert problem["instance"] == f"urn:strandline:request:{request_id}"
    assert answer.headers["Strandline-Metadata-Offset"] == "41"


def test_a_retry_says_when_in_whole_seconds_and_in_milliseconds() -> None:
    problem = problem_of(RetryLater("wait", retry_after_ms=1_500))
    assert problem.headers["Retry-After"] == "2"
    assert json.loads(problem.body("x"))["retry_after_ms"] == 1_500
    assert problem_of(RetryLater("wait", retry_after_ms=0)).headers["Retry-After"] == "1"


def test_field_reason_source_and_position_stand_in_the_document() -> None:
    assert json.loads(problem_of(InvalidRequest("x", field="offset")).body("x"))["field"] == (
        "offset"
    )
    assert json.loads(problem_of(Conflict("x", reason="GAP")).body("x"))["reason"] == "GAP"
    corrupt = json.loads(problem_of(CorruptData("x", source="a.log", position=61)).body("x"))
    assert (corrupt["source"], corrupt["position"]) == ("a.log", 61)


def test_an_internal_error_keeps_its_detail_to_the_log() -> None:
    assert problem_of(InternalError("secret")) == internal_problem()
    assert problem_of(StrandlineError("secret")) == internal_problem()
    assert "secret" not in internal_problem().detail


def test_hostile_text_in_a_problem_stays_printable() -> None:
    body = problem_of(NotFound("\ud800\x00\n<script>")).body("x")
    assert body.isascii()
    assert json.loads(body)["detail"] == "\ud800\x00\n<script>"


def test_a_status_without_a_row_is_a_wrong_request() -> None:
    assert http_problem(418, "teapot").row.kind == "invalid_request"

"""Hostile requests to a whole node: every parameter of every route, bodies, headers, names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from api.http.errors import PROBLEM_KINDS, PROBLEM_MEDIA_TYPE
from tests.e2e.node_process import NodeProcess

VALUES = (
    "-1", "-9223372036854775809", "9223372036854775807", "9223372036854775808", "1" * 400, "1e3",
    "0x10", "NaN", "٣", " 1", "1 ", "+1", "--", "null", "true", "", "\x00", "../../etc/passwd",
    "%2e%2e%2f", "{topic}", "' OR 1=1 --", "a" * 300, "💣",
)  # fmt: skip
GOOD = {
    "topic": "orders",
    "partition": "0",
    "name": "orders",
    "offset": "0",
    "epoch": "6",
    "leader_epoch": "6",
    "fetch_offset": "0",
    "timestamp": "earliest",
    "index_type": "offset",
    "leader_local_log_start_offset": "100",
}


@pytest.fixture(scope="module")
def http(node: NodeProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=node.url, timeout=30) as client:
        yield client


def get_routes(http: httpx.Client) -> list[tuple[str, list[dict[str, Any]]]]:
    """(path template, parameters) of every GET of the OpenAPI document."""
    document = http.get("/v1/openapi.json").json()
    return [
        (path, methods["get"].get("parameters", []))
        for path, methods in document["paths"].items()
        if "get" in methods
    ]


def request_path(template: str, values: dict[str, str]) -> str:
    """The template with each name replaced by its value as one path segment."""
    for name, value in values.items():
        template = template.replace("{" + name + "}", quote(value, safe="", errors="surrogatepass"))
    return template


def judge(answer: httpx.Response) -> None:
    """An answer, or a problem that says what is wrong; never a failure of the node's own."""
    if not answer.is_error:
        return
    assert answer.headers["content-type"] == PROBLEM_MEDIA_TYPE, answer.request.url
    problem = answer.json()
    assert problem["status"] == answer.status_code
    assert PROBLEM_KINDS[problem["kind"]].status == answer.status_code
    # A follower may well be ahead of the tier: an offset far off is "not yet", not wrong.
    assert answer.status_code in (400, 404, 405, 409, 416) or problem["kind"] == "retry_later", (
        answer.request.url,
        problem,
    )


def test_no_value_of_any_parameter_makes_the_node_fail(http: httpx.Client) -> None:
    segment = http.get("/v1/topics/orders/partitions/0/segments").json()["segments"][0]
    good = GOOD | {"segment_id": segment["segment_id"], "topic_id": segment["topic_id"]}
    tried = 0
    for template, parameters in get_routes(http):
        needed = {
            each["name"]: good[each["name"]]
            for each in parameters
            if each.get("required") and each["in"] == "query"
        }
        for parameter in parameters:
            if parameter["in"] not in ("path", "query"):
                continue
            name = parameter["name"]
            for value in VALUES:
                if parameter["in"] == "path":
                    answer = http.get(request_path(template, good | {name: value}), params=needed)
                else:
                    asked = needed | {name: value}
                    answer = http.get(request_path(template, good), params=asked)
                judge(answer)
                tried += 1
    assert tried > 500
    assert http.get("/readyz").status_code == 200


def test_a_body_over_the_limit_is_refused_unread(http: httpx.Client) -> None:
    path = "/v1/topics/orders/partitions/0/leader-transition"
    for body in (b"x" * 2_000_000, iter([b"x" * 65_536] * 32)):
        answer = http.post(path, content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 413
        assert answer.json()["kind"] == "body_too_large"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", None),
        (b"[]", None),
        (b"{" * 10_000, None),
        (b'{"leader_epoch": -1}', "leader_epoch"),
        (b'{"leader_epoch": 1e400}', "leader_epoch"),
        (b'{"leader_epoch": 6, "leader_epoch_checkpoint": []}', "leader_epoch_checkpoint"),
    ],
)
def test_a_wrong_body_is_a_wrong_request(
    http: httpx.Client, body: bytes, field: str | None
) -> None:
    answer = http.post(
        "/v1/topics/orders/partitions/0/leader-transition",
        content=body,
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code == 400
    assert answer.json()["kind"] == "invalid_request"
    if field is not None:
        assert field in answer.text


def test_who_may_only_read_changes_nothing(http: httpx.Client) -> None:
    answer = http.put("/v1/topics/orders/policy", json={"replaces_offset": None})
    assert answer.status_code == 403
    assert answer.json()["kind"] == "refused"


def test_a_host_that_is_not_this_machine_is_nobody(http: httpx.Client) -> None:
    # A page in the operator's browser may reach loopback by a name of its own (DNS rebinding).
    answer = http.get("/v1/cluster", headers={"Host": "evil.example"})
    assert answer.status_code == 401

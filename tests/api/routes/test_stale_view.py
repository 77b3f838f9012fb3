"""No change is answered "nothing to do" by a view that may lag: the quorum is asked first."""

from __future__ import annotations

from typing import Any

import pytest

from api.http.tokens import Role
from kafka_formats.errors import RetryLater
from tests.api.fakes import BASE, make_node

TOPIC = "/v1/topics/payments"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", f"{TOPIC}/tiered-data/undo", None),
        ("DELETE", f"{TOPIC}/tiered-data?confirm=payments", None),
        ("PUT", f"{BASE}/mode", {"mode": "sidecar", "confirm": "payments"}),
        ("POST", f"{BASE}/claim/reset", {"token": 7, "cut_at": None, "cut_offsets": 0}),
        ("POST", f"{BASE}/allow-gaps", {"reason": "a mirror", "dry_run": False}),
        ("POST", f"{BASE}/skip", {"reason": "it died", "dry_run": False}),
        (
            "POST",
            f"{BASE}/retention/delete-records",
            {"before_offset": 0, "reason": "order 7", "dry_run": False},
        ),
    ],
)
async def test_a_node_that_is_cut_off_from_the_quorum_answers_retry_later(
    method: str, path: str, body: dict[str, Any] | None
) -> None:
    node = make_node(anonymous_role=Role.ADMIN)
    node.manager.lags = RetryLater("the metadata quorum did not confirm its leader")
    async with node.client() as client:
        answer = await client.request(method, path, json=body)
        assert (answer.status_code, answer.json()["kind"]) == (503, "retry_later"), answer.text
        if body is not None and "dry_run" in body:
            tried = await client.request(method, path, json=body | {"dry_run": True})
            assert tried.json().get("kind") != "retry_later", "a dry run needs no quorum"

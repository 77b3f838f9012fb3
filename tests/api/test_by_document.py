"""Requests made from the OpenAPI document, to a node over real parts: whatever is asked, the answer
is one that the document names, in the shape that it names.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import pytest

from tests.api.schema_check import complaints
from tests.api.test_over_real_parts import ORDERS, asked, orders
from tests.real.toolbox import REPOSITORY
from tests.rlm.kafka_logs import TIMESTAMP_MS, KafkaLog
from tests.rlm.virtual_time import run_virtually

__all__ = ["orders"]  # a fixture

DOCUMENT: dict[str, Any] = json.loads((REPOSITORY / "tests/golden/openapi.json").read_text())
OPERATIONS = [
    (method.upper(), path, operation)
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
]
REQUESTS = 200
"""For each operation."""

BORDERS = (
    "-2", "-1", "0", "1", "9", "10", "19", "20", "1000", "1001", str(2**31 - 1), str(2**31),
    str(2**63 - 1), str(2**63), "9" * 60, "1.5", "1e3", "NaN", " 1", "+1", "\u0663",
)  # fmt: skip
HOSTILE = (
    "", ".", "..", "%2F", "a/b", "../../etc/passwd", "\x00", "a\x00b", "\n", "\u202e", "💥",
    "x" * 300, "y" * 5_000, "'\"--", "{topic}", "a%00", "%", "\ud800", "null", "[]",
)  # fmt: skip
GOOD: dict[str, tuple[str, ...]] = {
    "topic": ("orders", "orders", "orders", "payments"),
    "partition": ("0", "0", "0", "1"),
    "node_id": ("1", "2"),
    "directory_id": ("b-Jc1l2sQ1ySHBQ2a4nIlw",),
    "index_type": ("offset", "timestamp", "producer-snapshot", "transaction", "leader-epoch"),
    "timestamp": ("earliest", "latest", "latest-tiered", "max-timestamp", str(TIMESTAMP_MS + 12)),
    "isolation": ("read_committed", "read_uncommitted"),
    "format": ("batches", "json_lines"),
    "accept": ("*/*", "application/x-ndjson", "text/html", "a;q=x,*/*;q=0.1"),
    "Range": ("bytes=0-9", "bytes=5-", "bytes=-7", "bytes=9-5", "lines=1-2", "bytes=0-1,3-4"),
    "If-Range": ('"x"', "Sat, 01 Jan 2000 00:00:00 GMT"),
    "state": ("COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED"),
    "Strandline-Min-Metadata-Offset": ("-1", "0", "1"),
    "with_txn_index": ("true", "false"),
    "from_last_tiered": ("true", "false"),
    "epoch": ("0", "2"),
    "leader_epoch": ("0", "2"),
    "fetch_offset": ("3", "15", "25"),
    "cursor": ("AA",),
}
BODIES: dict[str, dict[str, Any]] = {
    "policy": {
        "retention_ms": 5,
        "retention_bytes": None,
        "copy_paused": True,
        "delete_paused": False,
    },
    "leader-transition": {
        "leader_epoch": 2,
        "leader_epoch_checkpoint": [
            {"epoch": 0, "start_offset": 0},
            {"epoch": 2, "start_offset": 15},
        ],
        "local_log_start_offset": 15,
        "log_end_offset": 25,
    },
    "voters": {
        "node_id": 4,
        "directory_id": "b-Jc1l2sQ1ySHBQ2a4nIlw",
        "host": "strand-4",
        "port": 9481,
    },
    "transfer": {"node_id": 2},
    "feature-level": {"feature_level": 1, "observers_upgraded": False},
}


class Asker:
    """Makes requests of one operation from a seeded source."""

    def __init__(self, seed: str, segment_ids: list[str]) -> None:
        self._random = random.Random(seed)
        self._good = GOOD | {"segment_id": tuple(segment_ids)}

    def request(self, method: str, path: str, operation: dict[str, Any]) -> httpx.Request:
        """The next one: mostly good, with one thing or two that are not."""
        hostility = self._random.choice((0.0, 0.1, 0.3, 0.8))
        values: dict[str, dict[str, str]] = {"path": {}, "query": {}, "header": {}}
        for parameter in operation.get("parameters", ()):
            needed = parameter.get("required", False) and self._random.random() > hostility / 4
            if needed or parameter["in"] == "path" or self._random.random() < 0.4:
                values[parameter["in"]][parameter["name"]] = self._value(parameter, hostility)
        raw = {name: _quoted(value) for name, value in values["path"].items()}
        query = urlencode(list(values["query"].items()), errors="surrogatepass")
        headers = {
            name: value
            for name, value in values["header"].items()
            if value.isascii() and value.isprintable() and len(value) < 2_000
        }
        content = None
        if "requestBody" in operation:
            content = self._body(BODIES[path.rpartition("/")[2]], hostility)
            headers["Content-Type"] = "application/json"
        url = f"http://localhost{path.format(**raw)}?{query}".rstrip("?")
        return httpx.Request(method, url, headers=headers, content=content)

    def _value(self, parameter: dict[str, Any], hostility: float) -> str:
        if self._random.random() < hostility:
            return self._random.choice(BORDERS + HOSTILE)
        good = self._good.get(parameter["name"])
        return self._random.choice(good or BORDERS[2:9])

    def _body(self, good: dict[str, Any], hostility: float) -> bytes:
        body = dict(good)
        for name in list(body):
            if self._random.random() < hostility:
                body[name] = self._random.choice(
                    (None, -1, 2**31, 2**63, 1.5, "x", "\ud800", [], {}, [{}], True, [None] * 50)
                )
        if self._random.random() < hostility / 4:
            return self._random.choice((b"", b"{", b"[]", b"\xff", b"[" * 9_000, b"9" * 5_000))
        return json.dumps(body).encode()


def _quoted(value: str) -> str:
    """Every byte of it, dots too: an empty segment or one of dots would be another path."""
    raw = value.encode("utf-8", "surrogatepass") or b"%"
    return quote(raw, safe="").replace(".", "%2E")


def check(method: str, operation: dict[str, Any], answer: httpx.Response) -> None:
    """One of the documented statuses, with the documented body."""
    status = answer.status_code
    asked_for = (
        f"{method} {answer.request.url} {answer.request.content[:300]!r}: {answer.text[:300]}"
    )
    assert status < 500 or status == 503, asked_for
    if status >= 400:
        assert answer.headers["Content-Type"] == "application/problem+json", asked_for
        problem = answer.json()
        schema = {"$ref": "#/components/schemas/ProblemDocument"}
        assert complaints(problem, schema, DOCUMENT) == [], asked_for
        assert problem["status"] == status
        assert status != 503 or problem["kind"] == "retry_later", asked_for
        assert len(answer.content) < 3_000, asked_for
        if problem["kind"] in ("no_such_route", "method_not_allowed"):
            return  # a slash in a value makes another path
    documented = operation["responses"]
    assert str(status) in documented, asked_for
    content = documented[str(status)].get("content", {})
    media_type = answer.headers.get("Content-Type", "").partition(";")[0]
    assert not content or media_type in content, asked_for
    if media_type == "application/json":
        schema = content[media_type].get("schema", {})
        assert complaints(answer.json(), schema, DOCUMENT) == [], asked_for


def test_every_answer_is_one_that_the_document_names(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with asked(tmp_path, orders) as client:
            page = (await client.get(f"{ORDERS}/segments")).json()
            ids = [segment["segment_id"] for segment in page["segments"]]
            for method, path, operation in OPERATIONS:
                asker = Asker(f"{method} {path}", ids)
                seen: Counter[int] = Counter()
                for _ in range(REQUESTS):
                    answer = await client.send(asker.request(method, path, operation))
                    check(method, operation, answer)
                    seen[answer.status_code // 100] += 1
                if path.startswith("/v1/topics/"):
                    assert seen[4] >= 5, (path, seen)
                assert seen[2] >= 3, (path, seen)

    run_virtually(main)


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        (1, {"type": "string"}),
        (True, {"type": "integer"}),
        (5, {"type": "integer", "maximum": 4}),
        ({}, {"type": "object", "required": ["a"]}),
        ({"b": 1}, {"type": "object", "properties": {}, "additionalProperties": False}),
        ([1, "x"], {"type": "array", "items": {"type": "integer"}}),
        ("c", {"anyOf": [{"enum": ["a"]}, {"const": "b"}, {"type": "null"}]}),
    ],
)
def test_the_check_of_shapes_bites(value: object, schema: dict[str, Any]) -> None:
    assert complaints(value, schema, DOCUMENT)

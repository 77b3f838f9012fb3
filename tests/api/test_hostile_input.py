"""Bad input in every parameter of every route: a 4xx that names the field, and nothing changed.

The table of number parameters is taken from the OpenAPI document, so that a new parameter cannot
be forgotten.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.http.api_limits import ApiLimits
from tests.api.fakes import BASE, make_node, segment_uuid

PATH_VALUES = {
    "topic": "payments",
    "partition": "0",
    "segment_id": str(segment_uuid(0)),
    "index_type": "offset",
    "node_id": "1",
    "job_id": str(segment_uuid(0)),
    "switch": "copying",
    "area": "tier",
    "call": "ready",
    "setting": "topics.tiered",
}
REQUIRED = {
    "name": "logs.*", "offset": "0", "epoch": "2", "timestamp": "0", "fetch_offset": "1",
    "leader_epoch": "2",
}  # fmt: skip
HUGE = str(2**63)
BAD_NUMBERS = [
    "-2",
    "-9223372036854775809",
    HUGE,
    "9" * 40,
    "9" * 5000,
    "NaN",
    "inf",
    "-Infinity",
    "1e3",
    "1.0",
    "1_000",
    "0x10",
    " 1",
    "+1",
    "",
    "--1",
    "٣",
    "1\x00",
    "null",
    "true",
]
GOLDEN = Path(__file__).parents[1] / "golden" / "openapi.json"
NODE = make_node(limits=ApiLimits(event_stream_s=0.0))  # its clock stands still
APP = NODE.app()
DOCUMENT: Any = json.loads(GOLDEN.read_text())
"""The application's own, by test_openapi.py; to make it takes 0.4 CPU seconds in each process."""


def is_number(schema: dict[str, Any]) -> bool:
    """True if a parameter takes a whole number."""
    return any(option.get("type") == "integer" for option in [schema, *schema.get("anyOf", [])])


def number_parameters() -> list[tuple[str, str, str]]:
    """(path, where, name) of every number parameter of every GET."""
    return [
        (path, parameter["in"], parameter["name"])
        for path, operations in DOCUMENT["paths"].items()
        for parameter in operations.get("get", {}).get("parameters", [])
        if is_number(parameter["schema"])
    ]


def required_query(path: str) -> dict[str, str]:
    """A good value for each query parameter that the route insists on."""
    return {
        parameter["name"]: REQUIRED[parameter["name"]]
        for parameter in DOCUMENT["paths"][path]["get"].get("parameters", [])
        if parameter["in"] == "query" and parameter.get("required")
    }


def test_the_table_has_the_parameters_one_would_think_of() -> None:
    names = {(where, name) for _, where, name in number_parameters()}
    assert {
        ("path", "partition"),
        ("path", "node_id"),
        ("query", "limit"),
        ("query", "offset"),
        ("query", "epoch"),
        ("query", "since_ms"),
        ("query", "max_bytes"),
        ("query", "fetch_offset"),
        ("query", "leader_epoch"),
        ("query", "leader_local_log_start_offset"),
        ("query", "log_end_offset"),
        ("query", "local_log_start_offset"),
        ("header", "Strandline-Min-Metadata-Offset"),
    } <= names


@pytest.mark.parametrize(("path", "where", "name"), number_parameters())
async def test_a_bad_number_is_a_400_that_names_its_field(path: str, where: str, name: str) -> None:
    async with NODE.client(app=APP) as client:
        for bad in BAD_NUMBERS:
            values, query, headers = dict(PATH_VALUES), required_query(path), {}
            if where == "path":
                if bad == "":
                    continue  # another path
                values[name] = quote(bad, safe="")
            elif where == "query":
                query[name] = bad
            else:
                if not bad.isascii() or "\x00" in bad:
                    continue  # no client can send it
                headers[name] = bad
            answer = await client.get(path.format(**values), params=query, headers=headers)
            assert answer.status_code == 400, (bad, answer.text)
            problem = answer.json()
            assert (problem["kind"], problem["field"]) == ("invalid_request", name), bad
            assert len(answer.content) < 2_000


@pytest.mark.parametrize(
    "name",
    [
        "..",
        ".",
        "a" * 250,
        "a" * 5000,
        "a b",
        "a\x00b",
        "a\nb",
        "tópico",
        "a:b",
        "a*",
        "<script>",
        "\u202e",
        "a\\b",
        "%2e%2e",
        "'; drop table topics; --",
        "💥",
    ],
)
async def test_a_hostile_topic_name_is_refused(name: str) -> None:
    encoded = "".join(f"%{byte:02x}" for byte in name.encode())
    async with NODE.client(app=APP) as client:
        for path in (
            f"/v1/topics/{encoded}",
            f"/v1/topics/{encoded}/policy",
            f"/v1/topics/{encoded}/partitions/0",
            f"/v1/topics/{encoded}/partitions/0/segments/{segment_uuid(0)}/log",
        ):
            answer = await client.get(path)
            assert (answer.status_code, answer.json()["field"]) == (400, "topic"), answer.text


async def test_a_name_with_a_slash_is_another_path() -> None:
    async with NODE.client(app=APP) as client:
        for name in ("..%2f..%2fetc%2fpasswd", "a%2fb", "%2f"):
            answer = await client.get(f"/v1/topics/{name}")
            assert (answer.status_code, answer.json()["kind"]) == (404, "no_such_route")
            assert "a topic name has only ASCII letters and digits" in answer.json()["detail"]


@pytest.mark.parametrize(
    "text", ["x", "..", "a" * 22, "A" * 23, "a" * 5000, "é" * 11, "a\x00", "A" * 21 + "=", "-" * 22]
)
async def test_a_wrong_uuid_is_refused_by_its_field(text: str) -> None:
    encoded = quote(text, safe="").replace(".", "%2e")
    async with NODE.client(app=APP) as client:
        answer = await client.get(f"{BASE}/segments/{encoded}/history")
        assert (answer.status_code, answer.json()["field"]) == (400, "segment_id"), answer.text
        answer = await client.get(f"{BASE}?topic_id={encoded}")
        assert (answer.status_code, answer.json()["field"]) == (400, "topic_id"), answer.text


@pytest.mark.parametrize(
    ("path", "field"),
    [
        (f"{BASE}/offsets?timestamp=-1", "timestamp"),
        (f"{BASE}/offsets?timestamp={HUGE}", "timestamp"),
        (f"{BASE}/offsets?timestamp=EARLIEST", "timestamp"),
        (f"{BASE}/offsets?timestamp={'9' * 99}", "timestamp"),
        (f"{BASE}/offsets?timestamp={'a' * 999}", "timestamp"),
        (f"{BASE}/offsets", "timestamp"),
        (f"{BASE}/records", "offset"),
        (f"{BASE}/records?offset=0&isolation=dirty", "isolation"),
        (f"{BASE}/records?offset=0&format=xml", "format"),
        (f"{BASE}/records?offset=0&max_bytes=0", "max_bytes"),
        (f"{BASE}/records?offset=0&max_bytes=1073741825", "max_bytes"),
        (f"{BASE}/segments?state=FINISHED", "state"),
        (f"{BASE}/segments?limit=0", "limit"),
        (f"{BASE}/segments?limit=1001", "limit"),
        (f"{BASE}/segments?cursor=abc", "cursor"),
        (f"{BASE}/segments?cursor={'a' * 3000}", "cursor"),
        ("/v1/topics?cursor=%00", "cursor"),
        (f"{BASE}/segments/lookup?epoch=1&offset=1&with_txn_index=maybe", "with_txn_index"),
        (f"{BASE}/follower-fetch?fetch_offset=1", "leader_epoch"),
        (f"{BASE}/segments/{segment_uuid(0)}/history?limit=1001", "limit"),
        (f"{BASE}/segments/{segment_uuid(0)}/indexes/..", "index_type"),
        (f"{BASE}/segments/{segment_uuid(0)}/indexes/{'a' * 500}", "index_type"),
    ],
)
async def test_other_bad_parameters_are_refused_by_their_field(path: str, field: str) -> None:
    # A path that ends in `..` is for the client to fold away; sent encoded it arrives.
    sent = path.replace("/..", "/%2e%2e")
    async with NODE.client(app=APP) as client:
        answer = await client.get(sent)
    assert (answer.status_code, answer.json()["field"]) == (400, field), answer.text


GOOD_POLICY: dict[str, object] = {
    "retention_ms": None,
    "retention_bytes": None,
    "copy_paused": False,
    "delete_paused": False,
}


@pytest.mark.parametrize("field", ["retention_ms", "retention_bytes", "replaces_offset"])
@pytest.mark.parametrize(
    "raw",
    ["-1", HUGE, "1e400", "NaN", "-Infinity", "1.5", "1.0", '"7"', "true", "[]", "9" * 400],
)
async def test_a_bad_number_in_a_body_is_refused_and_nothing_is_written(
    field: str, raw: str
) -> None:
    rest = "".join(
        f', "{name}": {str(value).lower().replace("none", "null")}'
        for name, value in GOOD_POLICY.items()
        if name != field
    )
    node = make_node()
    async with node.client() as client:
        answer = await client.put(
            "/v1/topics/payments/policy",
            content=f'{{"{field}": {raw}{rest}}}',
            headers={"Content-Type": "application/json"},
        )
    assert (answer.status_code, answer.json()["field"]) == (400, field), answer.text
    assert node.manager.policies == {}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b"\xff\xfe",
        b"{}",
        b'{"retention_ms": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b'{"copy_paused": "yes", "delete_paused": 1}',
        b'{"retention_ms":null,"retention_bytes":null,"copy_paused":false,"delete_paused":false,'
        b'"extra":1}',
    ],
    ids=range(11),
)
async def test_a_body_that_is_not_the_one_expected_is_refused(content: bytes) -> None:
    node = make_node()
    headers = {"Content-Type": "application/json"}
    async with node.client() as client:
        answer = await client.put("/v1/topics/payments/policy", content=content, headers=headers)
    assert (answer.status_code, answer.json()["kind"]) == (400, "invalid_request"), answer.text
    assert len(answer.content) < 2_000
    assert node.manager.policies == {}


async def test_a_body_of_another_media_type_is_refused() -> None:
    node = make_node()
    async with node.client() as client:
        for media_type in ("text/plain", "application/x-www-form-urlencoded"):
            answer = await client.put(
                "/v1/topics/payments/policy",
                content=b'{"retention_ms": 1}',
                headers={"Content-Type": media_type},
            )
            assert answer.status_code in (400, 415)
    assert node.manager.policies == {}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"leader_epoch": -1}, "leader_epoch"),
        ({"leader_epoch": 2**31}, "leader_epoch"),
        ({"leader_epoch": "2"}, "leader_epoch"),
        ({"leader_epoch_checkpoint": []}, "leader_epoch_checkpoint"),
        (
            {"leader_epoch_checkpoint": [{"epoch": 2, "start_offset": -1}]},
            "leader_epoch_checkpoint.0.start_offset",
        ),
        (
            {"leader_epoch_checkpoint": [{"epoch": 2, "start_offset": 0}] * 10_001},
            "leader_epoch_checkpoint",
        ),
        ({"leader_epoch_checkpoint": [{"epoch": 1, "start_offset": 0}]}, "leader_epoch_checkpoint"),
        ({"log_end_offset": 0}, "log_end_offset"),
        ({"log_end_offset": 2**63}, "log_end_offset"),
        ({"claim": True}, "claim"),
    ],
)
async def test_a_bad_leader_transition_is_refused_by_its_field(
    change: dict[str, object], field: str
) -> None:
    body = {
        "leader_epoch": 2,
        "leader_epoch_checkpoint": [{"epoch": 2, "start_offset": 150}],
        "local_log_start_offset": 150,
        "log_end_offset": 300,
    }
    async with NODE.client(app=APP) as client:
        answer = await client.post(f"{BASE}/leader-transition", json=body | change)
    assert (answer.status_code, answer.json()["field"]) == (400, field), answer.text


@given(
    st.sampled_from(sorted(DOCUMENT["paths"])),
    st.dictionaries(
        st.sampled_from([*sorted(REQUIRED), "limit", "cursor", "state", "topic_id", "x"]),
        st.text(max_size=30),
        max_size=4,
    ),
    st.text(min_size=1, max_size=20),
)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
async def test_no_text_anywhere_makes_an_internal_error(
    path: str, query: dict[str, str], text: str
) -> None:
    encoded = quote(text.encode("utf-8", "surrogatepass"), safe="")
    for name in PATH_VALUES:
        values = PATH_VALUES | {name: encoded}
        safe_query = {key: value.encode("utf-8", "replace") for key, value in query.items()}
        async with NODE.client(app=APP) as client:
            answer = await client.get(path.format(**values), params=safe_query)
        assert answer.status_code < 500, answer.text

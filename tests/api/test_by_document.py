"""Requests made from the OpenAPI document by Schemathesis, to a node over real parts: whatever is
asked, the answer is one that the document names, in the shape that it names, and what the document
rules out is refused.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from functools import cache
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy
from schemathesis import CheckFunction, GenerationMode
from schemathesis.checks import load_all_checks
from schemathesis.core.failures import FailureGroup
from schemathesis.generation.feedback import NO_FEEDBACK
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import negative_data_rejection

from tests.api.fake_collector import JOB_ID
from tests.api.test_over_real_parts import ORDERS, asked, new_orders
from tests.real.toolbox import REPOSITORY
from tests.rlm.kafka_logs import TIMESTAMP_MS
from tests.rlm.virtual_time import VirtualTimeLoop

URL = "http://localhost"
JSON, PROBLEM = "application/json", "application/problem+json"
UNKNOWN_HEADER = "x-schemathesis-unknown-property"
TOPIC_ID = "AQEBAQEBAQEBAW9yZGVycw"
SEGMENT_IDS = ["AAAAAAAAAAAAAAAAAAAETQ", "AAAAAAAAAAAAAAAAAAAETg", "AAAAAAAAAAAAAAAAAAAETw"]
GOOD: dict[str, list[Any]] = {
    "path.topic": ["orders"],
    "path.job_id": [str(JOB_ID)],
    "path.partition": [0],
    "path.segment_id": SEGMENT_IDS,
    "path.node_id": [1, 2],
    "path.switch": ["copying", "deleting"],
    "path.area": ["quorum", "tier"],
    "path.setting": ["copying.paused"],
    "path.index_type": ["offset", "timestamp", "producer-snapshot", "leader-epoch"],
    "query.topic_id": [TOPIC_ID],
    "query.confirm": ["orders"],
    "query.directory_id": ["b-Jc1l2sQ1ySHBQ2a4nIlw"],
    "query.timestamp": ["earliest", "latest", "max-timestamp", str(TIMESTAMP_MS + 12)],
    "query.name": ["logs.*", "orders"],
    "query.tiered": ["true", "false"],
    "query.offset": [0, 9, 12, 19, 20],
    "query.epoch": [0, 2],
    "query.leader_epoch": [2],
    "query.fetch_offset": [3, 15, 25],
    "query.leader_local_log_start_offset": [15],
    "query.local_log_start_offset": [15],
    "query.log_end_offset": [25],
    "header.accept": ["*/*", "application/x-ndjson", "text/html", "a;q=x,*/*;q=0.1"],
    "header.Range": ["bytes=0-9", "bytes=5-", "bytes=9-5", "lines=1-2", "bytes=0-1,3-4"],
    "header.If-Range": ['"x"', "Sat, 01 Jan 2000 00:00:00 GMT"],
    "header.Strandline-Min-Metadata-Offset": [-1, 0, 1],
}
"""Parameters that the node knows. Requests that are wrong in one thing start from these."""
GOOD_BODIES: dict[str, dict[str, Any]] = {
    "undo": {"why": "a mistake"},
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
    "migration": {"phase": "kafka", "why": "the audit asks", "dry_run": True},
    "{setting}": {"scope": {"kind": "cluster"}, "value": False, "why": "the audit asks"},
    "voters": {
        "node_id": 4,
        "directory_id": "b-Jc1l2sQ1ySHBQ2a4nIlw",
        "host": "strand-4",
        "port": 9481,
    },
    "transfer": {"node_id": 2},
    "{area}": {"level": "debug"},
    "collect": {"apply": True, "accept_objects": 3},
    "erase": {
        "topic": "orders",
        "topic_id": TOPIC_ID,
        "partition": 0,
        "before_offset": 5,
        "reason": "it has to go",
        "dry_run": False,
    },
    "repair": {"topic": "orders", "partition": 0, "from_scrub": True, "apply": True},
    "feature-level": {"feature_level": 2},
    "accepted-percent": {"percent": 85, "up_to_offset": None},
    "allow-gaps": {"reason": "mirrored with its offsets"},
    "skip": {"reason": "no replica has it"},
    "restore": {"why": "the policy was for logs", "hold": None},
    "release": {"why": "the policy is right"},
    "empty": {"reason": "the disk is full"},
    "delete-records": {"before_offset": 5, "reason": "it has to go"},
    "reset": {"token": 3, "cut_at": 15, "cut_offsets": 5, "dry_run": True},
    "mode": {"mode": "paused", "dry_run": True},
    "plan": {"retention_ms": 5, "retention_bytes": None},
    "{switch}": {"paused": True, "why": "the bucket is being moved"},
    "limits": {
        "copy_bytes_per_s": 50_000_000,
        "read_bytes_per_s": None,
        "topics": {"orders": {"copy_bytes_per_s": 10_000_000, "read_bytes_per_s": None}},
    },
    "scrub": {
        "partitions": [
            {
                "topic": "orders",
                "topic_id": TOPIC_ID,
                "partition": 0,
                "first_offset": 0,
                "last_offset": 24,
                "segments": 2,
                "read_bytes": 4_096,
                "unread": 0,
                "deleted": 0,
                "damaged": 0,
                "scrubbed_at_ms": 1_795_262_997_777,
                "damage": [],
            }
        ]
    },
    "known": {
        "segments": [
            {
                "topic": "orders",
                "topic_id": TOPIC_ID,
                "partition": 0,
                "segment_id": SEGMENT_IDS[0],
            }
        ]
    },
}
ANSWERED = {"expected-statuses": ["2xx", "3xx", "4xx", "503"]}
"""503 stands for: wait for a metadata offset that is not there yet."""
CHECKS = {
    "not_a_server_error": ANSWERED,
    # No schema says which cursor, range or checkpoint is a good one.
    "positive_data_acceptance": {"enabled": False},
    # A text that is too long may make the whole body too long.
    "negative_data_rejection": {"expected-statuses": ["4xx", "503"]},
    "ignored_auth": {"enabled": False},  # this node asks for no token; test_gate.py has those
}
QUICK_EXAMPLES, SOAK_EXAMPLES = 10, 1_000


def golden() -> Any:
    """The document without the broker's calls, whose bodies are no schema's:
    tests/rlm/delegated/test_calls.py has them.
    """
    raw = json.loads((REPOSITORY / "tests/golden/openapi.json").read_text())
    for path in [path for path in raw["paths"] if path.startswith("/v1/broker/")]:
        del raw["paths"][path]
    return raw


OPERATIONS = [
    (method.upper(), path) for path, methods in golden()["paths"].items() for method in methods
]


@cache
def document(*phases: str) -> schemathesis.BaseSchema:
    """The document, with examples that this node knows; cases of `phases`."""
    raw = golden()
    for path, operations in raw["paths"].items():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                known = GOOD.get(f"{parameter['in']}.{parameter['name']}")
                if known is not None:
                    parameter.pop("example", None)
                    parameter["examples"] = {str(value): {"value": value} for value in known}
            body = GOOD_BODIES.get(path.rpartition("/")[2])
            if body is not None and "requestBody" in operation:
                content = operation["requestBody"]["content"][JSON]
                content["examples"] = {"good": {"value": body}}
    config = schemathesis.Config.from_dict(
        {
            "seed": 20_261_121,
            "dictionaries": {f"of {name}": {"values": values} for name, values in GOOD.items()},
            "parameters": {
                name: {"dictionary": f"of {name}", "probability": 0.75} for name in GOOD
            },
            "generation": {"with-security-parameters": False},
            "checks": CHECKS,
            "phases": {
                name: {"enabled": name in phases} for name in ("examples", "coverage", "fuzzing")
            },
        }
    )
    return schemathesis.openapi.from_dict(raw, config=config)


load_all_checks()

Answer = Callable[[schemathesis.Case[Any]], httpx.Response]


def whole() -> schemathesis.BaseSchema:
    """All cases of all operations."""
    return document("examples", "coverage", "fuzzing")


def as_sent(case: schemathesis.Case[Any]) -> httpx.Request:
    """The request as the library's own client, which blocks, would send it."""
    made = requests.Request(**case.as_transport_kwargs(base_url=URL)).prepare()
    assert made.method is not None
    assert made.url is not None
    assert isinstance(made.body, str | bytes | None)
    headers = [(name, str(value)) for name, value in made.headers.items()]
    return httpx.Request(made.method, made.url, headers=headers, content=made.body)


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answer]:
    """Sends a case to a node that has copied three segments."""
    folder = tmp_path_factory.mktemp("node")
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        stack = AsyncExitStack()
        client = runner.run(stack.enter_async_context(asked(folder, new_orders(folder))))

        def send(case: schemathesis.Case[Any]) -> httpx.Response:
            return runner.run(client.send(as_sent(case)))

        try:
            page = runner.run(client.get(f"{ORDERS}/segments?topic_id={TOPIC_ID}")).json()
            assert [segment["segment_id"] for segment in page["segments"]] == SEGMENT_IDS
            yield send
        finally:
            runner.run(stack.aclose())


def check(case: schemathesis.Case[Any], answer: httpx.Response) -> None:
    """The library's checks, and what a schema can't say of our problem documents."""
    # HTTP lets a server overlook a header that it does not know.
    overlooked: list[CheckFunction] = (
        [negative_data_rejection] if UNKNOWN_HEADER in case.headers else []
    )
    case.validate_response(answer, excluded_checks=overlooked)
    if answer.status_code >= 400:
        problem = answer.json()
        assert problem["status"] == answer.status_code
        assert (problem["kind"] == "retry_later") == (answer.status_code == 503)
        assert len(answer.content) < 3_000


QUICK = settings(
    derandomize=True,
    max_examples=QUICK_EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def try_cases(operation: APIOperation[Any, Any, Any, Any], quick: settings, answer: Answer) -> None:
    """Cases are made here, and not by the library's decorator: each process that collects tests
    would make all of them.
    """

    @quick
    def each(case: schemathesis.Case[Any]) -> None:
        check(case, answer(case))

    build_operation_test(
        config=operation.schema.config,
        operation=operation,
        test_func=each,
        given_kwargs={},
        feedback=NO_FEEDBACK,
    )()


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_every_answer_is_one_that_the_document_names(
    method: str, path: str, answer: Answer
) -> None:
    try_cases(whole()[path][method], QUICK, answer)


@pytest.mark.soak
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_many_answers_are_ones_that_the_document_names(
    method: str, path: str, answer: Answer
) -> None:
    many = settings(QUICK, derandomize=False, max_examples=SOAK_EXAMPLES, database=None)
    try_cases(document("fuzzing")[path][method], many, answer)


def test_what_requests_start_from_is_good(answer: Answer) -> None:
    """Else all would be refused for the same reason, and nothing behind it be reached."""
    for path in whole():
        for method in whole()[path]:
            operation = whole()[path][method]
            needed: dict[str, dict[str, Any]] = {"path": {}, "query": {}, "header": {}}
            for parameter in operation.iter_parameters():
                if parameter.is_required:
                    place = parameter.location.value
                    needed[place][parameter.name] = GOOD[f"{place}.{parameter.name}"][0]
            case = operation.Case(path_parameters=needed["path"], query=needed["query"])
            if operation.body:
                case.media_type, case.body = JSON, GOOD_BODIES[path.rpartition("/")[2]]
            response = answer(case)
            # All that is sealed is copied in this world, so nothing is left to be skipped; nothing
            # is in its trash; and its one node lives.
            empty = path.endswith("/skip") or "/trash/" in path
            is_refused = empty or operation.label == "DELETE /v1/nodes/{node_id}"
            expected = 409 if is_refused else 200
            assert response.status_code == expected, (operation.label, response.text)
            check(case, response)


def topics() -> Any:
    """The operation that lists topics."""
    return whole()["/v1/topics"]["GET"]


Planted = tuple[int, str, object]
"""Status, media type, and what stands in the body."""
GOOD_ANSWER: Planted = (200, JSON, {"topics": [], "next_cursor": None})


def ask(cases: SearchStrategy[schemathesis.Case[Any]], faulty: Planted) -> None:
    """Of a list of topics that gives `faulty` in place of a good answer when the limit is high."""

    def reply(request: httpx.Request) -> httpx.Response:
        limit = request.url.params.get("limit", "")
        planted = faulty if limit.isdecimal() and int(limit) > 100 else GOOD_ANSWER
        status, media_type, body = planted
        stream = httpx.ByteStream(json.dumps(body).encode())
        return httpx.Response(status, headers={"Content-Type": media_type}, stream=stream)

    with httpx.Client(transport=httpx.MockTransport(reply)) as client:

        @given(case=cases)
        @settings(QUICK, phases=[Phase.generate])
        def run(case: schemathesis.Case[Any]) -> None:
            case.validate_response(client.send(as_sent(case)))

        run()


@pytest.mark.parametrize(
    ("faulty", "found"),
    [
        ((500, PROBLEM, {}), "Server error"),
        ((418, PROBLEM, {}), "Undocumented status code"),
        ((200, "text/html", ""), "Undocumented Content-Type"),
        ((200, JSON, {"topics": [{}], "next_cursor": None}), "Response violates schema"),
    ],
)
def test_a_planted_fault_is_found(faulty: Planted, found: str) -> None:
    with pytest.raises(FailureGroup, match=found):
        ask(topics().as_strategy(), faulty)


def test_what_the_document_rules_out_must_be_refused() -> None:
    ask(topics().as_strategy(), GOOD_ANSWER)
    with pytest.raises(FailureGroup, match="Schema-violating request accepted"):
        ask(topics().as_strategy(GenerationMode.NEGATIVE), GOOD_ANSWER)

"""What object stores answer: pages, deletions and heads of S3, and files with its keys."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from botocore.parsers import ResponseParserError
from botocore.session import get_session

from kafka_formats.errors import StrandlineError
from rsm_backends.s3_answer_parsers import AnswerParsers
from rsm_backends.s3_answers import (
    Asked,
    check_deleted,
    listed_folders,
    listed_keys,
    listed_uploads,
    listed_versions_below,
)
from rsm_backends.s3_client import service_descriptions
from rsm_backends.s3_range_answers import AnswerHead, UnfitAnswerError, wanted_bytes
from tests.fuzz.engine import KIB, Target
from tests.rsm_backends.test_conformance_lies import DELETES, FOLDERS, KEPT, LIST, UPLOADS

ASKED = Asked("list", "bkt", "p/", "the store 'main'")
_SPLIT = b"\0"


@cache
def _shape(operation: str) -> Any:
    session = get_session()
    session.register_component("data_loader", service_descriptions())
    return session.get_service_model("s3").operation_model(operation).output_shape


def _parsed(operation: str, body: bytes) -> dict[str, Any]:
    parser: Any = AnswerParsers().create_parser("rest-xml")
    answer = {"status_code": 200, "headers": {}, "body": body, "context": {}}
    try:
        parser.parse(answer, _shape(operation)).send(None)
    except StopIteration as ended:
        found: dict[str, Any] = ended.value
        return found
    raise AssertionError("a parser waits for nothing")


def _page(name: str, operation: str, body: bytes, read: Callable[[dict[str, Any]], Any]) -> Target:
    def run(data: bytes) -> object:
        return read(_parsed(operation, data))

    return Target(
        name=f"S3: {name}",
        covers=(),
        run=run,
        seeds=lambda: [body],
        errors=(ResponseParserError, StrandlineError),
        factor=200,
        constant_bytes=512 * KIB,
        share=0.3,
    )


def _head(data: bytes) -> object:
    fields = [text.decode("latin-1") or None for text in data.split(_SPLIT)[:4]]
    fields += [None] * (4 - len(fields))
    fields.append('"tag"')
    found = wanted_bytes(AnswerHead(206 if fields[1] else 200, *fields), 2, 6)
    assert found.size is None or 0 <= found.size <= 4
    return found


def store_targets() -> list[Target]:
    """Rows of the table."""
    return [
        _page("keys", "ListObjectsV2", LIST.body, lambda a: listed_keys(ASKED, a, "p/", None)),
        _page(
            "folders", "ListObjectsV2", FOLDERS.body, lambda a: listed_folders(ASKED, a, "p/", None)
        ),
        _page(
            "uploads",
            "ListMultipartUploads",
            UPLOADS.body,
            lambda a: listed_uploads(ASKED, a, "p/a"),
        ),
        _page(
            "versions",
            "ListObjectVersions",
            KEPT.body,
            lambda a: listed_versions_below(ASKED, a, "p/a"),
        ),
        _page(
            "deletions",
            "DeleteObjects",
            DELETES.body,
            lambda a: check_deleted(ASKED, a, ["p/a", "p/b"]),
        ),
        Target(
            name="S3: the head of an object's answer",
            covers=(),
            run=_head,
            seeds=lambda: [b"4\0bytes 2-5/10\0\0", b"4\0bytes 2-5/*\0identity\0chunked"],
            errors=(UnfitAnswerError,),
        ),
    ]

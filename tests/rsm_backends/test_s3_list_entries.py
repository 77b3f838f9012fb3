"""The quick reading of a list's entries says what botocore's says."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from xml.sax.saxutils import escape

import pytest
from aiobotocore.parsers import AioRestXMLParser
from botocore.exceptions import BotoCoreError
from botocore.parsers import ResponseParserError
from botocore.session import get_session
from hypothesis import given
from hypothesis import strategies as st

from rsm_backends import s3_list_entries
from rsm_backends.s3_list_entries import QuickParsers
from rsm_backends.s3_timestamps import parsed_timestamp

SHAPE = get_session().get_service_model("s3").operation_model("ListObjectsV2").output_shape
READ = ("Key", "Size", "LastModified", "ETag")
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=20)
TIMES = st.datetimes(datetime(1970, 1, 1), datetime(2500, 1, 1)).map(
    lambda time: time.strftime("%Y-%m-%dT%H:%M:%S.000Z")
)
VALUES = {
    "Key": TEXTS,
    "Size": st.integers(-1, 2**63).map(str) | st.just("many"),
    "LastModified": TIMES,
    "ETag": TEXTS,
    "StorageClass": TEXTS,
    "Other": TEXTS,
    "Owner": st.just(""),
}
ONE_OF_EACH = st.tuples(*(st.tuples(st.just(name), VALUES[name]) for name in READ)).map(list)
OTHERS = st.sampled_from(sorted(VALUES)).flatmap(
    lambda name: st.tuples(st.just(name), VALUES[name])
)
FEW = st.lists(OTHERS, max_size=4)
ENTRY = FEW | st.builds(lambda one, few: one + few, ONE_OF_EACH, FEW).flatmap(st.permutations)
ENTRIES = st.lists(ENTRY, max_size=4)


def page(entries: Sequence[Sequence[tuple[str, str]]], namespace: str) -> bytes:
    """As stores write it, owners with a key of their own among the fields."""
    told = "".join(
        "<Contents>"
        + "".join(
            "<Owner><Key>of the owner</Key></Owner>"
            if name == "Owner"
            else f"<{name}>{escape(text)}</{name}>"
            for name, text in fields
        )
        + "</Contents>"
        for fields in entries
    )
    return f"<ListBucketResult{namespace}><Name>b</Name>{told}</ListBucketResult>".encode()


async def parsed(parser: Any, body: bytes) -> Any:
    """The entries, of each what the store reads; or the kind of error."""
    answer = {"status_code": 200, "headers": {}, "body": body, "context": {}}
    try:
        found = await parser.parse(answer, SHAPE)
    except (ResponseParserError, BotoCoreError, ValueError, AttributeError, TypeError) as error:
        return type(error)
    entries = found.get("Contents", [])
    return [{name: plain(entry[name]) for name in READ if name in entry} for entry in entries]


def plain(value: Any) -> Any:
    """A field that stands there twice is answered as its elements, which equal nothing."""
    return [node.text for node in value] if isinstance(value, list) else value


@given(ENTRIES, st.sampled_from(("", ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"')))
async def test_it_says_what_the_general_reading_says(
    entries: list[list[tuple[str, str]]], namespace: str
) -> None:
    body = page(entries, namespace)
    general = AioRestXMLParser(timestamp_parser=parsed_timestamp)
    assert await parsed(QuickParsers().create_parser("rest-xml"), body) == await parsed(
        general, body
    )


async def test_whole_entries_are_read_without_the_general_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fields = [("Key", "a&b"), ("LastModified", "2026-01-02T03:04:05Z"), ("ETag", '"e"')]
    told: list[Any] = []
    quick = s3_list_entries.listed_entry

    def counted(node: Any) -> Any:
        told.append(quick(node))
        return told[-1]

    monkeypatch.setattr(s3_list_entries, "listed_entry", counted)
    parser = QuickParsers().create_parser("rest-xml")
    await parsed(parser, page([[*fields, ("Size", "7"), ("Owner", "")], fields], ""))
    modified = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert told == [{"Key": "a&b", "LastModified": modified, "ETag": '"e"', "Size": 7}, None]


def test_other_protocols_have_the_library_s_parsers() -> None:
    assert type(QuickParsers().create_parser("json")).__module__ == "aiobotocore.parsers"

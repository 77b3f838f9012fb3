"""The quick reading of a list's page says what botocore's says."""

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

from rsm_backends.s3_list_pages import FORM_BYTES_MAX, QuickParsers, quick_entries
from rsm_backends.s3_timestamps import parsed_timestamp

SHAPE = get_session().get_service_model("s3").operation_model("ListObjectsV2").output_shape
READ = ("Key", "Size", "LastModified", "ETag")
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=20)
USUAL_TEXTS = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20)
TIMES = st.datetimes(datetime(1970, 1, 1), datetime(2500, 1, 1)).map(
    lambda time: time.strftime("%Y-%m-%dT%H:%M:%S.000Z")
)
USUAL = {
    "Key": USUAL_TEXTS,
    "Size": st.integers(0, 2**59).map(str),
    "LastModified": TIMES,
    "ETag": USUAL_TEXTS,
    "StorageClass": USUAL_TEXTS,
    "Other": USUAL_TEXTS,
    "Owner": st.just(""),
}
ANY = USUAL | {
    "Key": TEXTS,
    "Size": st.integers(-1, 2**63).map(str) | st.just("many"),
    "LastModified": TIMES | st.just("2026-02-30T00:00:00Z"),
    "ETag": TEXTS,
    "Other": TEXTS,
}
ONE_OF_EACH = st.lists(st.sampled_from(["StorageClass", "Other", "Owner"]), max_size=3).flatmap(
    lambda others: st.permutations([*READ, *others])
)
FORMS = ONE_OF_EACH | st.lists(st.sampled_from(sorted(ANY)), max_size=6)
Fields = list[tuple[str, str]]


@st.composite
def entries(draw: st.DrawFn) -> list[Fields]:
    """Of few forms, as stores write them; most usual ones."""
    forms = draw(st.lists(FORMS, min_size=1, max_size=2))
    texts = USUAL if draw(st.integers(0, 3)) else ANY
    return [
        [(name, draw(texts[name])) for name in draw(st.sampled_from(forms))]
        for _ in range(draw(st.integers(0, 5)))
    ]


def page(
    entries: Sequence[Sequence[tuple[str, str]]], namespace: str = "", quote: str = "&quot;"
) -> bytes:
    """As stores write it, owners with a key of their own among the fields."""
    told = "".join(
        "<Contents>"
        + "".join(
            "<Owner><ID>7</ID><DisplayName></DisplayName></Owner>"
            if name == "Owner"
            else f"<{name}>{escape(text, {chr(34): quote})}</{name}>"
            for name, text in fields
        )
        + "</Contents>"
        for fields in entries
    )
    return (
        f"<ListBucketResult{namespace}><Name>b</Name><Prefix/><MaxKeys>1000</MaxKeys>{told}"
        "<CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes><IsTruncated>true</IsTruncated>"
        "<NextContinuationToken>t</NextContinuationToken></ListBucketResult>"
    ).encode()


async def parsed(parser: Any, body: bytes) -> Any:
    """The page, of its entries what the store reads; or the kind of error."""
    answer = {"status_code": 200, "headers": {}, "body": body, "context": {}}
    try:
        found = await parser.parse(answer, SHAPE)
    except BotoCoreError as error:
        return type(error)
    except (ResponseParserError, ValueError, AttributeError, TypeError):
        return ResponseParserError  # whatever the general reading calls it
    listed = found.get("Contents", [])
    found["Contents"] = [
        {name: plain(entry[name]) for name in READ if name in entry} for entry in listed
    ]
    return found


def plain(value: Any) -> Any:
    """A field that stands there twice is answered as its elements, which equal nothing."""
    return [node.text for node in value] if isinstance(value, list) else value


def quick() -> Any:
    return QuickParsers().create_parser("rest-xml")


def general() -> Any:
    return AioRestXMLParser(timestamp_parser=parsed_timestamp)


@given(
    entries(),
    st.sampled_from(("", ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"')),
    st.sampled_from(("&quot;", "&#34;", '"')),
)
async def test_it_says_what_the_general_reading_says(
    entries: list[Fields], namespace: str, quote: str
) -> None:
    body = page(entries, namespace, quote)
    assert await parsed(quick(), body) == await parsed(general(), body)


AWS = b"""<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><Prefix>t%20/</Prefix>\
<KeyCount>3</KeyCount><MaxKeys>1000</MaxKeys><EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>\
<Contents><Key>t%20/a%26b</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified>\
<ETag>&quot;9b2cf535f27731c974343645a3985328&quot;</ETag><Size>7</Size><StorageClass>STANDARD</StorageClass></Contents>\
<Contents><Key>t%20/c</Key><LastModified>2026-01-02T03:04:06.000Z</LastModified>\
<ETag>&quot;9b2cf535f27731c974343645a3985328-2&quot;</ETag><ChecksumAlgorithm>CRC32C</ChecksumAlgorithm>\
<ChecksumType>FULL_OBJECT</ChecksumType><Size>0</Size><StorageClass>STANDARD</StorageClass></Contents>\
<Contents><Key>t%20/d</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified>\
<ETag>&quot;9b2cf535f27731c974343645a3985328&quot;</ETag><Size>9</Size><StorageClass>STANDARD</StorageClass></Contents>\
</ListBucketResult>"""
MINIO = b"""<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><Prefix></Prefix>\
<NextContinuationToken>dGllci9h[minio_cache:v2,return:]</NextContinuationToken><KeyCount>1</KeyCount>\
<MaxKeys>1</MaxKeys><Delimiter></Delimiter><IsTruncated>true</IsTruncated><Contents><Key>tier/a</Key>\
<LastModified>2026-01-02T03:04:05.678Z</LastModified><ETag>&#34;9b2cf535f27731c974343645a3985328&#34;</ETag>\
<Size>7</Size><Owner><ID></ID><DisplayName></DisplayName></Owner><StorageClass>STANDARD</StorageClass></Contents>\
<EncodingType>url</EncodingType></ListBucketResult>"""


@pytest.mark.parametrize(("body", "sizes"), [(AWS, [7, 0, 9]), (MINIO, [7])])
async def test_pages_as_stores_write_them_are_read_quickly(body: bytes, sizes: list[int]) -> None:
    told = quick_entries(body)
    assert told is not None
    assert [entry["Size"] for entry in told[0]] == sizes
    assert {entry["LastModified"].tzinfo for entry in told[0]} == {UTC}
    assert await parsed(quick(), body) == await parsed(general(), body)


ENTRY = page(
    [[("Key", "k"), ("LastModified", "2026-01-02T03:04:05Z"), ("ETag", "e"), ("Size", "7")]]
)
LONE, BEHIND = b"<Contents><Key>z</Key></Contents>", b"<CommonPrefixes>"
UNUSUAL = {
    "an entry in a comment": (b"<Contents>", b"<!-- <Contents></Contents> --><Contents>"),
    "an entry below another element": (b"<Prefix/>", b"<Prefix>" + LONE + b"</Prefix>"),
    "all below another element": (b"<Name>b</Name>", b"<Name>"),
    "an empty entry before": (b"<Prefix/>", b"<Prefix/><Contents/>"),
    "one more behind the others": (BEHIND, b"<Other/>" + LONE + BEHIND),
    "one with an attribute behind the others": (
        BEHIND,
        LONE.replace(b"s>", b"s a='1'>", 1) + BEHIND,
    ),
    "a field in a comment": (b"<Key>k</Key>", b"<Key/><!-- <Key>n</Key> -->"),
    "a field only below": (b"<Key>k</Key>", b"<Owner><Key>n</Key></Owner>"),
    "one below, one empty": (b"<Key>k</Key>", b"<Key/><Owner><Key>n</Key></Owner>"),
    "one below another": (b"<Key>k</Key>", b"<Key>k</Key><Owner><Key>n</Key></Owner>"),
    "two": (b"<Key>k</Key>", b"<Key>k</Key><Key>n</Key>"),
    "an attribute": (b"<Key>k</Key>", b"<Key a='1'>k</Key>"),
    "a name space": (b"<Key>k</Key>", b"<s:Key xmlns:s='http://s'>k</s:Key>"),
    "CDATA": (b"<Key>k</Key>", b"<Key><![CDATA[k]]></Key>"),
    "an entity": (b"<Key>k</Key>", b"<Key>k&amp;&#x6b;</Key>"),
    "no entity": (b"<Key>k</Key>", b"<Key>k&nothing;</Key>"),
    "a line's end": (b"<Key>k</Key>", b"<Key>k\r\n</Key>"),
    "a control character": (b"<Key>k</Key>", b"<Key>k\x01</Key>"),
    "no UTF-8": (b"<Key>k</Key>", b"<Key>k\xff</Key>"),
    "what XML forbids": (b"<Key>k</Key>", b"<Key>k]]></Key>"),
    "tags that cross": (b"<Key>k</Key>", b"<Key><Owner>k</Key></Owner>"),
    "no such day": (b"-01-02T", b"-02-30T"),
    "a day by its number": (b"2026-01-02T03:04:05Z", b"2026-002T03:04:05Z"),
    "a sign": (b"<Size>7", b"<Size>-7"),
    "too many digits": (b"<Size>7", b"<Size>" + b"7" * 19),
    "no end": (b"</Contents>", b""),
    "no end of the page": (b"</ListBucketResult>", b""),
    "very many tags": (b"<Size>", b"<Other/>" * FORM_BYTES_MAX + b"<Size>"),
}


@pytest.mark.parametrize("name", UNUSUAL)
async def test_what_is_unusual_goes_the_general_way(name: str) -> None:
    before, after = UNUSUAL[name]
    body = ENTRY.replace(before, after)
    assert quick_entries(ENTRY) is not None
    assert body != ENTRY
    assert await parsed(quick(), body) == await parsed(general(), body)
    assert quick_entries(body) is None or name == "no end of the page"


def test_a_page_without_entries_goes_the_general_way() -> None:
    assert quick_entries(page([])) is None


def test_other_protocols_have_the_library_s_parsers() -> None:
    assert type(QuickParsers().create_parser("json")).__module__ == "aiobotocore.parsers"

"""S3's answers: what its pages say is read, and what is no answer of S3's is one kind of error."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import pytest
from botocore.parsers import ResponseParserError
from botocore.session import get_session

from rsm_backends import s3_answer_parsers
from rsm_backends.s3_answer_parsers import AnswerParsers

LIST: Any = get_session().get_service_model("s3").operation_model("ListObjectsV2").output_shape


async def parsed(body: bytes) -> Any:
    answer = {"status_code": 200, "headers": {}, "body": body, "context": {}}
    parser: Any = AnswerParsers().create_parser("rest-xml")
    return await parser.parse(answer, LIST)


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
async def test_pages_as_stores_write_them(body: bytes, sizes: list[int]) -> None:
    entries = (await parsed(body))["Contents"]
    assert [entry["Size"] for entry in entries] == sizes
    assert {entry["LastModified"].tzinfo for entry in entries} == {UTC}
    assert {entry["ETag"].strip('"')[:32] for entry in entries} == {
        "9b2cf535f27731c974343645a3985328"
    }


UNREADABLE = {
    "a size that is none": (b"<Size>7", b"<Size>many"),
    "no such day": (b"-01-02T", b"-02-30T"),
    "neither true nor false": (b"<IsTruncated>true", b"<IsTruncated>perhaps"),
    "a list within a size": (b"<Size>7", b"<Size>7</Size><Size>7"),
    "no UTF-8": (b"<Key>tier/a", b"<Key>\xff"),
    "no end of the page": (b"</ListBucketResult>", b""),
    "somebody else's page": (b"ListBucketResult", b"html"),
}


@pytest.mark.parametrize("name", UNREADABLE)
async def test_what_is_no_answer_is_one_kind_of_error(name: str) -> None:
    before, after = UNREADABLE[name]
    body = MINIO.replace(before, after)
    assert body != MINIO
    with pytest.raises(ResponseParserError):
        await parsed(body)


@pytest.mark.parametrize(
    ("operation", "body", "looked_through"),
    [
        ("ListObjectsV2", MINIO, False),
        ("ListObjectsV2", b"<Error><Code>InternalError</Code></Error>", True),
        ("CompleteMultipartUpload", b" \n<?xml version='1.0'?>\n<Error/>", True),
        ("CompleteMultipartUpload", b"<!DOCTYPE html><p>Sign in", False),
    ],
)
def test_an_answer_is_looked_through_for_an_error_that_begins_as_one(
    operation: str, body: bytes, looked_through: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(
        s3_answer_parsers, "_handle_200_error", lambda model, _answer: seen.append(model.name)
    )
    model = get_session().get_service_model("s3").operation_model(operation)
    s3_answer_parsers._find_error(model, {"body": body})
    assert seen == ([operation] if looked_through else [])


def test_other_protocols_have_the_library_s_parsers() -> None:
    assert type(AnswerParsers().create_parser("json")).__module__ == "aiobotocore.parsers"

"""What only the S3 store has: its answers' corner cases, and stores that lack a feature."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import aiohttp
import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    IncompleteReadError,
    NoCredentialsError,
    ParamValidationError,
    ReadTimeoutError,
    SSLError,
)
from botocore.parsers import ResponseParserError
from types_aiobotocore_s3.client import S3Client

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import (
    CorruptData,
    InvalidRequest,
    NotFound,
    Refused,
    RetryLater,
    StrandlineError,
)
from rsm_backends import s3
from rsm_backends.s3 import S3Store
from rsm_backends.s3_answers import Asked
from rsm_backends.s3_client_errors import store_error
from rsm_backends.store import UploadedPart
from rsm_backends.store_config import StoreConfig
from rsm_backends.streams import read_all
from tests.real.ports import free_ports

CONFIG = StoreConfig(
    name="s3",
    kind="s3",
    bucket="bkt",
    access_key_id="AKIDEXAMPLE",
    secret_access_key="topsecret",
    session_token="toptoken",
)
ENCODED = base64.b64encode(crc32c(b"data").to_bytes(4, "big")).decode()
COMPOSITE = (
    base64.b64encode(crc32c(crc32c(b"data").to_bytes(4, "big")).to_bytes(4, "big")).decode() + "-1"
)
SECRETS = ("AKIDEXAMPLE", "topsecret", "toptoken")
Answer = dict[str, Any] | Exception | Callable[[dict[str, Any]], dict[str, Any]]


class FakeClient:
    """Answers each operation from its list, and remembers what it was asked."""

    def __init__(self, **answers: list[Answer]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def __getattr__(self, operation: str) -> Any:
        async def call(**parameters: Any) -> dict[str, Any]:
            self.asked.append((operation, parameters))
            answer = self.answers[operation].pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer(parameters) if callable(answer) else answer

        return call


class FakeBody:
    """A response body in pieces; an exception among them is raised."""

    def __init__(self, *pieces: bytes | Exception) -> None:
        self.pieces = list(pieces)
        self.closed = False

    async def read(self, _: int) -> bytes:
        piece = self.pieces.pop(0) if self.pieces else b""
        if isinstance(piece, Exception):
            raise piece
        return piece

    def close(self) -> None:
        self.closed = True


def got(body: FakeBody, status: int = 200, **headers: str | None) -> dict[str, Any]:
    """An answer to a GET; a header's name with `_` for `-`."""
    told = {name.replace("_", "-"): text for name, text in headers.items() if text is not None}
    return {"Body": body, "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": told}}


def fake_store(client: FakeClient) -> S3Store:
    return S3Store(CONFIG, cast(S3Client, client), AsyncExitStack())


def refusal(code: str, status: int = 400) -> ClientError:
    return ClientError(
        {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}},  # type: ignore[typeddict-item]  # the rest is not read
        "Operation",
    )


async def test_every_put_carries_its_checksum_and_create_only_its_condition() -> None:
    answer: Answer = {"ETag": "e", "ChecksumCRC32C": ENCODED}
    client = FakeClient(put_object=[answer, answer])
    store = fake_store(client)
    await store.put("a", b"data", crc32c=crc32c(b"data"))
    await store.put("a", b"data", crc32c=crc32c(b"data"), create_only=True)
    assert len(client.asked) == 2  # the checksum tells that all bytes are there
    assert client.asked[0][1]["ChecksumCRC32C"] == ENCODED
    assert "IfNoneMatch" not in client.asked[0][1]
    assert client.asked[1][1]["IfNoneMatch"] == "*"


async def test_a_store_that_answers_with_another_checksum_holds_other_bytes() -> None:
    store = fake_store(
        FakeClient(
            put_object=[{"ETag": "e", "ChecksumCRC32C": "AAAAAA=="}],
            upload_part=[{"ETag": "e", "ChecksumCRC32C": "AAAAAA=="}],
        )
    )
    with pytest.raises(CorruptData, match="s3://bkt/a at byte 0"):
        await store.put("a", b"data", crc32c=crc32c(b"data"))
    with pytest.raises(CorruptData):
        await store.put_part("a", "u", 1, b"data", crc32c=crc32c(b"data"))


@pytest.mark.parametrize("code", ["InvalidArgument", "InvalidRequest", "NotImplemented"])
async def test_a_store_that_refuses_full_object_checksums_gets_composite_ones(code: str) -> None:
    client = FakeClient(
        create_multipart_upload=[refusal(code), {"UploadId": "u"}, {"UploadId": "v"}],
        complete_multipart_upload=[{"ETag": "e", "ChecksumCRC32C": COMPOSITE}],
    )
    store = fake_store(client)
    assert await store.start_multipart("a") == "u"
    part = UploadedPart(1, 4, crc32c(b"data"), "e")
    await store.complete_multipart("a", "u", [part], crc32c=crc32c(b"data"))
    assert await store.start_multipart("a") == "v"
    asked = [parameters for _, parameters in client.asked]
    assert [parameters.get("ChecksumType") for parameters in asked] == [
        "FULL_OBJECT", None, None, None,
    ]  # fmt: skip
    assert "ChecksumCRC32C" not in asked[2]
    assert asked[2]["MultipartUpload"]["Parts"][0]["ChecksumCRC32C"] == ENCODED


@pytest.mark.parametrize(
    "answer",
    [
        {"ChecksumCRC32C": "AAAAAA==", "ChecksumType": "FULL_OBJECT"},
        {"ChecksumCRC32C": "AAAAAA==-1"},
        {"ChecksumCRC32C": "AAAAAA==", "ChecksumType": "COMPOSITE"},
    ],
)
async def test_a_completion_answered_with_another_checksum_is_corrupt(
    answer: dict[str, Any],
) -> None:
    store = fake_store(FakeClient(complete_multipart_upload=[{"ETag": "e"} | answer]))
    part = UploadedPart(1, 4, crc32c(b"data"), "e")
    with pytest.raises(CorruptData):
        await store.complete_multipart("a", "u", [part], crc32c=crc32c(b"data"))


async def test_a_store_that_ignores_the_checksum_type_is_asked_no_more() -> None:
    client = FakeClient(
        create_multipart_upload=[{"UploadId": "u"}, {"UploadId": "v"}],
    )
    store = fake_store(client)
    await store.start_multipart("a")
    await store.start_multipart("a")
    assert [parameters.get("ChecksumType") for _, parameters in client.asked] == [
        "FULL_OBJECT",
        None,
    ]


async def test_other_refusals_of_an_upload_are_errors() -> None:
    store = fake_store(FakeClient(create_multipart_upload=[refusal("AccessDenied", 403)]))
    with pytest.raises(Refused):
        await store.start_multipart("a")


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        (ENCODED, "FULL_OBJECT", crc32c(b"data")),
        (ENCODED, None, crc32c(b"data")),
        (ENCODED, "COMPOSITE", None),
        (ENCODED + "-3", None, None),
        (None, None, None),
    ],
)
async def test_only_a_full_objects_checksum_is_told(
    text: str | None, kind: str | None, expected: int | None
) -> None:
    answer = {
        "ContentLength": 4,
        "LastModified": datetime(2026, 1, 1, tzinfo=UTC),
        "ETag": "e",
        "ChecksumCRC32C": text,
        "ChecksumType": kind,
    }
    described = await fake_store(FakeClient(head_object=[answer])).head("a")
    assert described.crc32c == expected
    assert described.last_modified_ms == 1_767_225_600_000


@pytest.mark.parametrize("content_range", [None, "bytes 0-9/10", "bytes 40-9/10", "bytes 4-8/10"])
async def test_an_answer_with_another_range_is_not_handed_out(content_range: str | None) -> None:
    """And the object is not called damaged: it was not even read."""
    body = FakeBody(b"wrong bytes")
    answer = got(
        body, 206 if content_range else 200, content_length="6", content_range=content_range
    )
    with pytest.raises(RetryLater, match=r"get of 'a' .* store 's3' .*Content-Range"):
        await read_all(fake_store(FakeClient(get_object=[answer])), "a", start=4)
    assert body.closed


async def test_of_a_whole_object_that_came_for_its_beginning_the_beginning_is_read() -> None:
    body = FakeBody(b"0123456", b"789")
    answer = got(body, content_length="10", etag='"tag"')
    assert await read_all(fake_store(FakeClient(get_object=[answer])), "a", end=8) == b"01234567"
    assert body.closed


@pytest.mark.parametrize(
    ("status", "headers"),
    [(200, {"content_length": "12", "etag": '"tag"'}), (206, {"content_range": "bytes 2-13/20"})],
)
async def test_a_body_that_ends_too_soon_is_no_object(status: int, headers: Any) -> None:
    """Where a proxy hands it on until the connection ends, nothing else tells."""
    store = fake_store(FakeClient(get_object=[got(FakeBody(b"ten bytes."), status, **headers)]))
    start, end = (0, None) if status == 200 else (2, 14)
    with pytest.raises(RetryLater, match="ended 2 bytes before its end"):
        await read_all(store, "a", start=start, end=end)


@pytest.mark.parametrize(
    "error",
    [
        ReadTimeoutError(endpoint_url="http://x"),
        aiohttp.ClientPayloadError("cut off"),
        ConnectionResetError("reset"),
        TimeoutError("slow"),
    ],
)
async def test_a_stream_that_breaks_off_says_so_and_closes(error: Exception) -> None:
    body = FakeBody(b"some bytes", error)
    with pytest.raises(RetryLater):
        await read_all(fake_store(FakeClient(get_object=[got(body, content_length="99")])), "a")
    assert body.closed


async def test_deleting_goes_in_thousands_and_tells_the_worst_refusal() -> None:
    client = FakeClient(
        delete_objects=[
            lambda asked: {"Deleted": asked["Delete"]["Objects"]},
            {"Errors": [{"Key": "key-1000", "Code": "NoSuchKey"}]},
            {
                "Errors": [
                    {"Key": "k1", "Code": "InternalError", "Message": "busy"},
                    {"Key": "k2", "Code": "AccessDenied", "Message": "locked"},
                ]
            },
            {"Errors": [{"Key": "k1", "Code": "SlowDown", "Message": "busy"}]},
        ]
    )
    store = fake_store(client)
    await store.delete_many([f"key-{number}" for number in range(1001)])
    assert [len(parameters["Delete"]["Objects"]) for _, parameters in client.asked] == [1000, 1]
    with pytest.raises(Refused, match="'k2'"):
        await store.delete_many(["k1", "k2"])
    with pytest.raises(RetryLater, match="'k1'"):
        await store.delete_many(["k1"])


@pytest.mark.parametrize(
    "answer",
    [{}, {"Deleted": [{"Key": "k1"}]}, {"Deleted": [{"Key": "k1"}, {"Key": None}, {}]}],
)
async def test_what_the_store_does_not_call_deleted_is_not(answer: dict[str, Any]) -> None:
    store = fake_store(FakeClient(delete_objects=[answer]))
    with pytest.raises(RetryLater, match=r"delete in bucket 'bkt' .* no element Deleted for"):
        await store.delete_many(["k1", "k2"])


async def test_a_list_that_is_cut_off_without_a_token_goes_on_behind_its_last_key() -> None:
    def entry(key: str) -> dict[str, Any]:
        return {"Key": key, "Size": 1, "LastModified": datetime(2026, 1, 1, tzinfo=UTC)}

    first = {"IsTruncated": True, "Contents": [entry("p/a"), entry("p/b")]}
    last = {"IsTruncated": False, "Contents": [entry("p/c")]}
    client = FakeClient(list_objects_v2=[first, last, first, first])
    store = fake_store(client)
    page = await store.list_page("p/")
    found = await store.list_page("p/", cursor=page.next_cursor)
    assert [each.key for each in (*page.objects, *found.objects)] == ["p/a", "p/b", "p/c"]
    assert client.asked[1][1]["StartAfter"] == "p/b"
    with pytest.raises(RetryLater, match="not in ascending order"):  # the same page again, for ever
        await store.list_page("p/", cursor=(await store.list_page("p/")).next_cursor)


async def test_folders_that_are_cut_off_without_a_token_go_on_behind_the_last_one() -> None:
    first = {"IsTruncated": True, "CommonPrefixes": [{"Prefix": "p/a/"}, {"Prefix": "p/b/"}]}
    last = {"IsTruncated": False, "CommonPrefixes": [{"Prefix": "p/c/"}]}
    client = FakeClient(list_objects_v2=[first, last])
    store = fake_store(client)
    page = await store.list_folders("p/")
    found = await store.list_folders("p/", cursor=page.next_cursor)
    assert (*page.folders, *found.folders) == ("p/a/", "p/b/", "p/c/")
    assert client.asked[1][1]["StartAfter"] > "p/b/\uffff"


@pytest.mark.parametrize("code", ["NoSuchKey", "KeyTooLongError", "XMinioInvalidObjectName"])
async def test_a_key_that_the_store_takes_nothing_under_counts_as_deleted(code: str) -> None:
    client = FakeClient(delete_object=[refusal(code)])
    config = replace(CONFIG, compatibility=frozenset({"single-deletes"}))
    await S3Store(config, cast(S3Client, client), AsyncExitStack()).delete_many(["k"])


async def test_a_list_that_counts_more_folders_than_it_has_is_not_believed() -> None:
    client = FakeClient(list_objects_v2=[{"IsTruncated": False, "KeyCount": 2}])
    with pytest.raises(RetryLater, match="KeyCount is higher"):
        await fake_store(client).list_folders("p/")


async def test_uploads_that_are_cut_off_without_markers_go_on_behind_the_last_one() -> None:
    first = {"IsTruncated": True, "Uploads": [{"Key": "k", "UploadId": "u1"}]}
    last = {"IsTruncated": False, "Uploads": [{"Key": "k", "UploadId": "u2"}]}
    client = FakeClient(list_multipart_uploads=[first, last, first, first])
    store = fake_store(client)
    assert await store.list_uploads("k") == ("u1", "u2")
    assert client.asked[1][1]["UploadIdMarker"] == "u1"
    with pytest.raises(RetryLater, match="the same page again"):
        await store.list_uploads("k")


async def test_pages_of_nothing_are_followed_to_the_first_key_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    empty = {"IsTruncated": True, "NextContinuationToken": "t"}
    monkeypatch.setattr(s3, "EMPTY_PAGES_MAX", 3)
    store = fake_store(
        FakeClient(list_objects_v2=[empty, empty, {"IsTruncated": False}, *[empty] * 6])
    )
    assert (await store.list_page("p/")).next_cursor is None
    with pytest.raises(RetryLater, match="3 pages"):
        await store.list_page("p/")
    with pytest.raises(RetryLater, match="3 pages"):
        await store.list_folders("p/")


async def test_an_object_is_absent_only_in_the_stores_own_words() -> None:
    bare, said = refusal("404", 404), refusal("NoSuchKey", 404)
    store = fake_store(
        FakeClient(head_object=[bare, bare, bare], get_object=[said, bare, got(FakeBody(b"a"))])
    )
    with pytest.raises(NotFound):
        await store.head("a")
    with pytest.raises(RetryLater, match="the status is 404, without an element Code"):
        await store.head("a")
    with pytest.raises(RetryLater, match="a GET of the same object succeeds"):
        await store.head("a")


async def test_a_range_is_behind_the_end_only_if_the_object_is_that_short() -> None:
    described = {"ContentLength": 4, "ETag": "e"}
    refused = refusal("InvalidRange", 416)
    store = fake_store(
        FakeClient(get_object=[refused, refused], head_object=[described, described])
    )
    assert await read_all(store, "a", start=4) == b""
    with pytest.raises(RetryLater, match="the status is 416, and the object has 4 bytes"):
        await read_all(store, "a", start=3)


async def test_uploads_of_longer_keys_are_passed_over_page_by_page() -> None:
    def page(*keys: str, more: bool) -> dict[str, Any]:
        return {
            "Uploads": [{"Key": key, "UploadId": f"{key}-{n}"} for n, key in enumerate(keys)],
            "IsTruncated": more,
            "NextKeyMarker": keys[-1],
            "NextUploadIdMarker": "m",
        }

    client = FakeClient(
        list_multipart_uploads=[page("k", "k", more=True), page("k", "k/x", more=True)]
    )
    assert await fake_store(client).list_uploads("k") == ("k-0", "k-1", "k-0")
    assert client.asked[1][1]["KeyMarker"] == "k"


async def test_uploads_below_a_prefix_are_told_page_by_page() -> None:
    def page(*keys: str, more: bool) -> dict[str, Any]:
        uploads = [{"Key": key, "UploadId": "u"} for key in keys]
        return {
            "Uploads": uploads, "IsTruncated": more,
            "NextKeyMarker": keys[-1], "NextUploadIdMarker": "m",
        }  # fmt: skip

    client = FakeClient(
        list_multipart_uploads=[page("p/a", "p/b", more=True), page("p/c", more=False)]
    )
    found = await fake_store(client).uploads_below("p/")
    assert [(each.key, each.upload_id) for each in found] == [
        ("p/a", "u"), ("p/b", "u"), ("p/c", "u"),
    ]  # fmt: skip
    assert client.asked[1][1] == {
        "Bucket": "bkt", "Prefix": "p/", "KeyMarker": "p/b", "UploadIdMarker": "m",
    }  # fmt: skip


async def test_a_store_without_servers_is_a_passing_failure() -> None:
    config = replace(CONFIG, endpoint_url=f"http://127.0.0.1:{free_ports(1)[0]}")
    store = await S3Store.open(config)
    with pytest.raises(RetryLater, match="connection failed") as caught:
        await store.head("a")
    assert not any(secret in str(caught.value) for secret in SECRETS)
    await store.close()
    await store.close()


async def test_neither_the_store_nor_its_configuration_shows_a_secret() -> None:
    store = await S3Store.open(CONFIG)
    for text in (repr(store), repr(CONFIG), str(CONFIG)):
        assert not any(secret in text for secret in SECRETS)
        assert "bkt" in text
    assert pickle.loads(pickle.dumps(CONFIG)) == CONFIG
    await store.close()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (EndpointConnectionError(endpoint_url="http://x"), RetryLater),
        (ReadTimeoutError(endpoint_url="http://x"), RetryLater),
        (
            SSLError(endpoint_url="http://x", error=OSError("[SSL: CERTIFICATE_VERIFY_FAILED]")),
            Refused,
        ),
        (SSLError(endpoint_url="http://x", error=OSError("EOF")), RetryLater),
        (NoCredentialsError(), Refused),
        (CredentialRetrievalError(provider="p", error_msg="m"), Refused),
        (ConnectTimeoutError(endpoint_url="http://x"), RetryLater),
        (ConnectionClosedError(endpoint_url="http://x"), RetryLater),
        (IncompleteReadError(actual_bytes=1, expected_bytes=2), RetryLater),
        (ParamValidationError(report="bad"), InvalidRequest),
        (ResponseParserError("<html>"), RetryLater),
        (ConnectionResetError("reset"), RetryLater),
        (refusal("NoSuchBucket", 404), InvalidRequest),
    ],
)
def test_the_clients_errors_become_ours(error: Exception, kind: type[StrandlineError]) -> None:
    raised = store_error(error, Asked("put", "bkt", "a", "the store 's3'"))
    assert type(raised) is kind
    assert "put" in str(raised) or "bucket 'bkt'" in str(raised)


async def test_a_region_that_cannot_be_is_refused_at_opening() -> None:
    with pytest.raises(InvalidRequest):
        await S3Store.open(replace(CONFIG, region="not a region!"))

"""What S3's words mean: one case per instruction the caller gets."""

from __future__ import annotations

import pickle

import pytest

from kafka_formats.errors import (
    AlreadyExists,
    InvalidRequest,
    NotFound,
    Refused,
    RetryLater,
    StrandlineError,
)
from rsm_backends.memory import MemoryStore
from rsm_backends.retrying import RetryingStore, RetryPolicy
from rsm_backends.s3_errors import error_for_code
from rsm_backends.store import ObjectInfo


def error(code: str, status: int, message: str = "", key: str | None = "a/b") -> StrandlineError:
    return error_for_code(code, status, message, operation="put", bucket="bkt", key=key)


@pytest.mark.parametrize(
    ("code", "status", "kind", "says"),
    [
        ("NoSuchBucket", 404, InvalidRequest, "bucket 'bkt' does not exist: create it"),
        ("NoSuchKey", 404, NotFound, "'a/b'"),
        ("NoSuchUpload", 404, NotFound, "does not exist"),
        ("404", 404, NotFound, "does not exist"),
        ("PreconditionFailed", 412, AlreadyExists, "was not changed"),
        ("412", 412, AlreadyExists, "was not changed"),
        ("InvalidAccessKeyId", 403, Refused, "credentials"),
        ("SignatureDoesNotMatch", 403, Refused, "credentials"),
        ("ExpiredToken", 400, Refused, "credentials"),
        ("AccessDenied", 403, Refused, "grant"),
        ("403", 403, Refused, "grant"),
        ("SomethingNew", 403, Refused, "grant"),
        ("InvalidObjectState", 403, Refused, "archived"),
        ("KMS.ThrottlingException", 400, RetryLater, "failed for now"),
        ("KMS.DisabledException", 400, Refused, "enable that key"),
        ("KMS.NotFoundException", 400, Refused, "KMS key can't be used"),
        ("RequestTimeTooSkewed", 403, Refused, "clock"),
        ("SlowDown", 503, RetryLater, "failed for now"),
        ("InternalError", 500, RetryLater, "failed for now"),
        ("RequestTimeout", 400, RetryLater, "failed for now"),
        ("ConditionalRequestConflict", 409, RetryLater, "failed for now"),
        ("SomethingNew", 502, RetryLater, "failed for now"),
        ("BadDigest", 400, RetryLater, "arrived damaged"),
        ("XMinioStorageFull", 507, RetryLater, "full"),
        ("PermanentRedirect", 301, InvalidRequest, "region"),
        ("NotImplemented", 501, InvalidRequest, "does not support it"),
        ("KeyTooLongError", 400, InvalidRequest, "KeyTooLongError"),
        ("XMinioInvalidObjectName", 400, InvalidRequest, "XMinioInvalidObjectName"),
        ("InvalidPart", 400, InvalidRequest, "InvalidPart"),
    ],
)
def test_each_code_becomes_one_instruction(
    code: str, status: int, kind: type[StrandlineError], says: str
) -> None:
    raised = error(code, status, "some words")
    assert type(raised) is kind
    assert says in str(raised)


def test_a_key_is_shown_escaped_and_its_absence_is_not() -> None:
    assert "'a\\n\\u2028'" in str(error("InvalidArgument", 400, key="a\n\u2028"))
    assert "of None" not in str(error("AccessDenied", 403, key=None))


def test_what_looks_like_a_secret_in_the_stores_words_is_blotted_out() -> None:
    secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
    text = str(error("SignatureDoesNotMatch", 403, f"you signed with {secret}, wrong"))
    assert secret not in text
    assert "you signed with …, wrong" in text


def test_long_words_are_cut() -> None:
    assert len(str(error("InternalError", 500, "word " * 1000))) < 600


@pytest.mark.parametrize(
    ("header", "pause_s"),
    [("7", 7.0), ("0", 0.0), ("9" * 30, 10.0), ("-3", 0.0), ("Wed, 25 Nov 2026 01:02:03 GMT", 0.0)],
)
@pytest.mark.parametrize(("code", "status"), [("SlowDown", 503), ("429", 429)])
async def test_a_store_that_asks_for_a_pause_gets_it_up_to_a_bound(
    code: str, status: int, header: str, pause_s: float
) -> None:
    error = error_for_code(
        code, status, "", operation="put", bucket="b", key="k", retry_after=header
    )
    assert isinstance(error, RetryLater)
    waits = []

    class Busy(MemoryStore):
        async def head(self, key: str) -> ObjectInfo:
            raise error

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    store = RetryingStore(
        Busy(lambda: 0), RetryPolicy(attempts_max=2), sleep=sleep,
        random_fraction=lambda: 0.0, monotonic=lambda: 0.0,
    )  # fmt: skip
    with pytest.raises(RetryLater):
        await store.head("k")
    assert waits == [pause_s]
    assert str(pickle.loads(pickle.dumps(error))) == str(error)

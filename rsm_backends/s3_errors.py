"""The one table from S3's error codes to our error tree.

Pure; used by `s3_client_errors.py` (botocore's exceptions), `s3_answers.py` (entries of a multi-
delete) and `s3_blocking.py`. Codes: AWS S3's list of error responses, MinIO's additions. An answer
without a body has its HTTP status in place of a code; `s3_answers.believed` decides whether such a
404 counts as NotFound.
"""

from __future__ import annotations

import re

from kafka_formats.errors import (
    AlreadyExists,
    InvalidRequest,
    NotFound,
    Refused,
    RetryLater,
    StrandlineError,
)
from rsm_backends.slow_down import SlowDown, told_pause_s

_MESSAGE_CHARS_MAX = 300
_CODE_CHARS_MAX = 80
_KEY_CHARS_MAX = 256

_NO_SUCH_BUCKET = frozenset({"NoSuchBucket"})
_NOT_FOUND = frozenset({"NoSuchKey", "NoSuchUpload", "NoSuchVersion", "404"})
_EXISTS = frozenset({"PreconditionFailed", "412"})
_WRONG_CREDENTIALS = frozenset(
    {
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidToken",
        "InvalidTokenId",
        "SignatureDoesNotMatch",
        "TokenRefreshRequired",
        "401",
    }
)
_NOT_ALLOWED = frozenset(
    {
        "AccessDenied",
        "AccountProblem",
        "AllAccessDisabled",
        "MethodNotAllowed",
        "ObjectLocked",
        "UnauthorizedAccess",
        "403",
        "405",
    }
)
_ARCHIVED = "InvalidObjectState"
_OF_KMS = "KMS."
"""Begins codes that the store passes on from the key management of its encryption."""
_CLOCK = frozenset({"RequestTimeTooSkewed", "RequestExpired"})
_RETRY = frozenset(
    {
        "BandwidthLimitExceeded",
        "ConditionalRequestConflict",
        "DependencyTimeoutException",
        "InternalError",
        "KMSInternalException",
        "OperationAborted",
        "RequestTimeout",
        "RequestTimeoutException",
        "ServiceUnavailable",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequests",
        "XMinioServerNotInitialized",
        "408",
        "409",
        "429",
    }
)
_DAMAGED_ON_THE_WAY = frozenset(
    {"BadDigest", "IncompleteBody", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch"}
)
_FULL = frozenset({"QuotaExceeded", "XMinioAdminBucketQuotaExceeded", "XMinioStorageFull", "507"})
_WRONG_REGION = frozenset(
    {
        "AuthorizationHeaderMalformed",
        "AuthorizationQueryParametersError",
        "IllegalLocationConstraintException",
        "PermanentRedirect",
        "TemporaryRedirect",
        "301",
        "307",
    }
)
_NOT_IMPLEMENTED = frozenset({"NotImplemented", "501"})
_PERHAPS_KEYS = _WRONG_CREDENTIALS | {"AccessDenied", "400", "403"}


def may_be_of_keys(code: str) -> bool:
    """True if a refusal with this code may be due to outdated keys: the refusal of a HEAD has no
    code, and some stores answer AccessDenied to an access key that they do not know.
    """
    return code in _PERHAPS_KEYS


def error_for_code(
    code: str,
    status: int,
    message: str,
    *,
    operation: str,
    bucket: str,
    key: str | None,
    retry_after: object = None,
) -> StrandlineError:
    """Our error for S3's `code`, or for the HTTP `status` of an answer without a body.
    `retry_after` is the value of the Retry-After header.
    """
    code = " ".join(code.split())[:_CODE_CHARS_MAX] or "nothing"
    what = (
        f"{operation} of {key[:_KEY_CHARS_MAX]!a} in bucket {bucket!r}"
        if key
        else f"{operation} in bucket {bucket!r}"
    )
    said = (
        f"the store answered {code}: {_shortened(message)}"
        if message
        else f"the store answered {code}"
    )
    if code in _NO_SUCH_BUCKET:
        # Not NotFound: callers would conclude that the object is absent.
        return InvalidRequest(
            f"bucket {bucket!r} does not exist: create it, or correct the bucket setting",
            field="bucket",
        )
    if code in _NOT_FOUND:
        return NotFound(f"{what}: it does not exist ({said})")
    if code in _EXISTS:
        return AlreadyExists(f"{what}: the object exists already and was not changed")
    if code in _WRONG_CREDENTIALS:
        return Refused(
            f"{what}: wrong or expired credentials ({said}); correct the keys in the store's "
            "credentials_file, or where the AWS look-up finds them: they are read again"
        )
    if code in _CLOCK:
        return Refused(f"{what}: this machine's clock differs from the store's; set it ({said})")
    if code in _DAMAGED_ON_THE_WAY:
        return RetryLater(f"{what}: the bytes arrived damaged ({said})")
    if code in _FULL:
        return RetryLater(f"{what}: the store is full ({said})", retry_after_ms=10_000)
    if code in _WRONG_REGION:
        return InvalidRequest(
            f"{what}: wrong region or endpoint for this bucket ({said})", field="region"
        )
    if code in _NOT_IMPLEMENTED:
        return InvalidRequest(f"{what}: this store does not support it ({said})")
    if code.removeprefix(_OF_KMS) in _RETRY or status >= 500:
        pause_s = told_pause_s(retry_after)
        failed = f"{what}: failed for now ({said})"
        return SlowDown(failed, pause_s) if pause_s else RetryLater(failed)
    return _refused(code, status, what, said) or InvalidRequest(f"{what}: {said}")


def _refused(code: str, status: int, what: str, said: str) -> Refused | None:
    """The refusal of a request that is right in itself; None: it is no such answer."""
    if code == _ARCHIVED:
        return Refused(
            f"{what}: the object is archived ({said}); restore it in the store, and take archiving "
            "of this bucket out of its lifecycle rules"
        )
    if code.startswith(_OF_KMS):
        return Refused(
            f"{what}: the bucket's KMS key can't be used ({said}); enable that key, or let the "
            "store's user use it"
        )
    if code in _NOT_ALLOWED or status in (401, 403):
        return Refused(
            f"{what}: not allowed ({said}); grant the store's user this right on the bucket"
        )
    return None


def _shortened(message: str) -> str:
    """The store's own message, cut; anything that looks like a key or signature is masked."""
    plain = re.sub(r"[A-Za-z0-9/+=]{20,}", "…", " ".join(message.split()))
    return plain if len(plain) <= _MESSAGE_CHARS_MAX else plain[:_MESSAGE_CHARS_MAX] + "…"

"""Translates botocore's and aiohttp's errors to ours; S3's codes by the table in `s3_errors.py`."""

from __future__ import annotations

import aiohttp
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
    SSLError,
)
from botocore.exceptions import ConnectionError as BotoConnectionError
from botocore.parsers import ResponseParserError

from kafka_formats.errors import InvalidRequest, Refused, RetryLater, StrandlineError
from rsm_backends.s3_answers import Asked, believed
from rsm_backends.s3_errors import error_for_code

CLIENT_ERRORS = (BotoCoreError, ClientError, ResponseParserError, aiohttp.ClientError, OSError)
"""Every error that a call of the client raises."""

_MESSAGE_CHARS_MAX = 300
_NO_CREDENTIALS = (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError)
_CONNECTION = (
    BotoConnectionError,
    HTTPClientError,
    IncompleteReadError,
    aiohttp.ClientError,
    OSError,
)


def store_error(error: Exception, asked: Asked) -> StrandlineError:
    """Our error for the client's `error` on the request `asked`."""
    if isinstance(error, ClientError):
        code = code_of(error)
        message = str(error.response.get("Error", {}).get("Message", ""))
        found = error_for_code(
            code, status_of(error), message,
            operation=asked.operation, bucket=asked.bucket, key=asked.key,
            retry_after=error.response.get("ResponseMetadata", {})
            .get("HTTPHeaders", {})
            .get("retry-after"),
        )  # fmt: skip
        return believed(asked, found, code)
    where = f"{asked.operation} in bucket {asked.bucket!r} of {asked.store}"
    if isinstance(error, _NO_CREDENTIALS):
        why = "" if isinstance(error, NoCredentialsError) else f" ({_shown(error)})"
        return Refused(
            f"{where}: no credentials were found{why}; set the store's credentials_file and "
            "profile (on Spark strandline.s3.access.key and strandline.s3.secret.key), or give "
            "them to the usual AWS look-up: environment, ~/.aws/credentials, the machine's role. "
            "They are looked for again at the next requests"
        )
    if isinstance(error, SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        return Refused(
            f"{where}: the store's TLS certificate is not trusted; set the store's ca_file"
        )
    if isinstance(error, ResponseParserError):
        return asked.unexpected(_shown(error))
    if isinstance(error, _CONNECTION):
        return RetryLater(
            f"{where}: the connection failed: {type(error).__name__}: {_shown(error)}"
        )
    return InvalidRequest(f"{where}: the client refused the request: {_shown(error)}")


def code_of(error: ClientError) -> str:
    """S3's error code, or the HTTP status if the answer had no code."""
    return str(error.response.get("Error", {}).get("Code") or status_of(error) or "unknown")


def status_of(error: ClientError) -> int:
    """The answer's HTTP status."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _shown(error: Exception) -> str:
    """The error's text as one line of bounded length, since it may contain parts of an answer."""
    text = " ".join(str(error).split())
    return text if len(text) <= _MESSAGE_CHARS_MAX else text[:_MESSAGE_CHARS_MAX] + "…"

"""Checks the answer to a GET, and finds the requested bytes of its body.

Pure. A proxy that ignores Range, truncates a body or compresses it would deliver wrong bytes. None
of that is damage of the object: a request whose answer does not fit is repeated, and the object is
not reported as corrupt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_WHOLE, _PARTIAL = 200, 206
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)")
_UNPACKED = (None, "", "identity", "aws-chunked")


class UnfitAnswerError(Exception):
    """The answer does not fit the request; the message names the header that shows it."""


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """Status and headers of an answer to a GET; None for an absent header."""

    status: int
    content_length: str | None
    content_range: str | None
    content_encoding: str | None
    transfer_encoding: str | None
    etag: str | None


@dataclass(frozen=True, slots=True)
class WantedBytes:
    """The requested part of the body: its first `size` bytes, or, if that is None because the
    headers do not contain it, at most `size_max`. `object_bytes` is the size of the whole object;
    None if the headers do not contain it.
    """

    size: int | None
    size_max: int | None
    object_bytes: int | None


def wanted_bytes(head: AnswerHead, start: int, end: int | None) -> WantedBytes:
    """The requested bytes in the answer to a GET of [start, end). UnfitAnswerError if the answer
    does not fit: then no byte of it may be used.
    """
    if head.content_encoding not in _UNPACKED:
        raise UnfitAnswerError(
            f"Content-Encoding is {head.content_encoding!a:.60}, which was not asked for"
        )
    length = _length(head)
    if head.status == _PARTIAL:
        return _of_part(head.content_range, length, start, end)
    if head.status != _WHOLE:
        raise UnfitAnswerError(f"the status is {head.status}, neither 200 nor 206")
    if start > 0:
        raise UnfitAnswerError(
            "Content-Range is missing: the whole object came although a range was asked for"
        )
    if not head.etag:
        # A captive portal's or a proxy's page; in a partial answer Content-Range shows the object.
        raise UnfitAnswerError("ETag is missing")
    size = length if end is None or length is None else min(length, end)
    return WantedBytes(size, end if size is None else size, length)


def head_of(answer: Mapping[str, Any]) -> AnswerHead:
    """Status and headers of an answer as the client returns it."""
    metadata = answer.get("ResponseMetadata", {})
    headers = metadata.get("HTTPHeaders", {})
    return AnswerHead(
        metadata.get("HTTPStatusCode", 0),
        *(
            headers.get(name)
            for name in (
                "content-length",
                "content-range",
                "content-encoding",
                "transfer-encoding",
                "etag",
            )
        ),
    )


def bytes_of_object(content_range: str | None) -> int | None:
    """The object's size from `bytes */SIZE`, the Content-Range of a refused range; else None."""
    kind, _, size = (content_range or "").partition("/")
    return int(size) if kind == "bytes *" and re.fullmatch("[0-9]{1,18}", size) else None


def _length(head: AnswerHead) -> int | None:
    text = head.content_length
    if text is None:
        is_chunked = (head.transfer_encoding or "").lower() == "chunked"
        if head.status == _WHOLE and not is_chunked:
            # The body would end with the connection: a truncated one could not be noticed.
            raise UnfitAnswerError("Content-Length is missing")
        return None
    if not re.fullmatch("[0-9]{1,18}", text):
        raise UnfitAnswerError(f"Content-Length is {text!a:.60}")
    return int(text)


def _of_part(told: str | None, length: int | None, start: int, end: int | None) -> WantedBytes:
    if start == 0 and end is None:
        raise UnfitAnswerError("the status is 206, and no range was asked for")
    match = None if told is None else _CONTENT_RANGE.fullmatch(told)
    if match is None:
        raise UnfitAnswerError(f"Content-Range is {told!a:.60}")
    first, last = int(match[1]), int(match[2])
    total = None if match[3] == "*" else int(match[3])
    fits = first == start and last >= first and (end is None or last < end)
    if total is not None:
        fits = fits and last == (total if end is None else min(end, total)) - 1
    else:  # nothing shows that a shorter part is all that the object has
        fits = fits and end is not None and last == end - 1
    if not fits:
        wanted = f"{start} to {'the end' if end is None else end - 1}"
        raise UnfitAnswerError(f"Content-Range is {told!a:.60}, bytes {wanted} were asked for")
    size = last - first + 1
    if length is not None and length != size:
        raise UnfitAnswerError(f"Content-Length is {length}, and Content-Range {told!a:.60}")
    return WantedBytes(size, size, total)

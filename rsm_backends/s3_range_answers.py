"""What the answer to a GET holds: how much of its body are the bytes that were asked for.

Pure. A proxy that leaves Range aside, cuts a body short or packs it would hand out wrong bytes.
None of that is damage of the object: an answer that does not fit its question is asked for again,
and never called corrupt.
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
    """The answer is not one to the question; the message names the header that tells."""


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """Status and headers of an answer to a GET; None: not there."""

    status: int
    content_length: str | None
    content_range: str | None
    content_encoding: str | None
    transfer_encoding: str | None


@dataclass(frozen=True, slots=True)
class WantedBytes:
    """The first `size` bytes of the body are those asked for; None: not told before, `size_max` at
    most. `object_bytes` is how long the whole object is; None: not told.
    """

    size: int | None
    size_max: int | None
    object_bytes: int | None


def wanted_bytes(head: AnswerHead, start: int, end: int | None) -> WantedBytes:
    """Of the answer to a GET of [start, end). UnfitAnswerError: none of it may be handed out."""
    if head.content_encoding not in _UNPACKED:
        raise UnfitAnswerError(
            f"Content-Encoding is {head.content_encoding!a:.60}, which nobody asked for"
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
    size = length if end is None or length is None else min(length, end)
    return WantedBytes(size, end if size is None else size, length)


def head_of(answer: Mapping[str, Any]) -> AnswerHead:
    """Of an answer as the client gives it."""
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
            )
        ),
    )


def bytes_of_object(content_range: str | None) -> int | None:
    """How long the object is, as `bytes */SIZE` of a refused range tells; None: it does not."""
    kind, _, size = (content_range or "").partition("/")
    return int(size) if kind == "bytes *" and re.fullmatch("[0-9]{1,18}", size) else None


def _length(head: AnswerHead) -> int | None:
    text = head.content_length
    if text is None:
        is_chunked = (head.transfer_encoding or "").lower() == "chunked"
        if head.status == _WHOLE and not is_chunked:
            # Then the end of the connection is the end of the body: cut off looks like whole.
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
    if not fits:
        wanted = f"{start} to {'the end' if end is None else end - 1}"
        raise UnfitAnswerError(f"Content-Range is {told!a:.60}, bytes {wanted} were asked for")
    size = last - first + 1
    if length is not None and length != size:
        raise UnfitAnswerError(f"Content-Length is {length}, and Content-Range {told!a:.60}")
    return WantedBytes(size, size, total)

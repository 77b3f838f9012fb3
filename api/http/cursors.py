"""Opaque page cursors: the place at which a list continues.

A cursor has a version, a check value and the key of the last item shown. The check value covers the
list and its filters, so a cursor that was changed, cut, or taken from a different list is refused
and never gives a wrong page. It is not secret and grants nothing.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping

from kafka_formats.errors import InvalidRequest

CURSOR_VERSION = 1
CURSOR_CHARACTERS_MAX = 3_000
"""The longest cursor: enough for the places of 75 nodes, and short enough for a URL once it is
encoded.
"""
_CHECK_BYTES = 8

CursorKey = tuple[str | int, ...]


def encode_cursor(listing: str, filters: Mapping[str, object], key: CursorKey) -> str:
    """The cursor for the page after the item with `key` of `listing` under `filters`."""
    payload = json.dumps(key, separators=(",", ":")).encode("ascii")
    raw = bytes((CURSOR_VERSION,)) + _check(listing, filters, payload) + payload
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def decode_cursor(
    listing: str, filters: Mapping[str, object], cursor: str, shape: tuple[type, ...]
) -> CursorKey:
    """The key in a cursor, whose parts have the types of `shape`. InvalidRequest: it is not a
    cursor of this list with these filters.
    """
    wrong = InvalidRequest(
        "not a cursor of this list: pass `next_cursor` of the previous page unchanged, "
        "with the same filters",
        field="cursor",
    )
    if not cursor.isascii() or not 0 < len(cursor) <= CURSOR_CHARACTERS_MAX:
        raise wrong
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise wrong from None
    check, payload = raw[1 : 1 + _CHECK_BYTES], raw[1 + _CHECK_BYTES :]
    if raw[:1] != bytes((CURSOR_VERSION,)) or check != _check(listing, filters, payload):
        raise wrong
    try:
        key = json.loads(payload)
    except (ValueError, RecursionError):
        raise wrong from None
    if not isinstance(key, list) or tuple(type(part) for part in key) != shape:
        raise wrong
    return tuple(key)


def _check(listing: str, filters: Mapping[str, object], payload: bytes) -> bytes:
    named = json.dumps([listing, sorted((name, str(value)) for name, value in filters.items())])
    digest = hashlib.blake2b(digest_size=_CHECK_BYTES, person=b"strand-cursor-1")
    digest.update(named.encode("ascii"))
    digest.update(b"\0")
    digest.update(payload)
    return digest.digest()

"""Builds the template by which a worker recognises and answers the next Fetch of a consumer that
scans one partition. Pure.

The position of the offset in the request is found by encoding the request with two different
offsets.
"""

from __future__ import annotations

from itertools import count

from kafka_listener.protocol.codec import ClientRequest, Pieces, encode_request, sized
from rlm.data_plane.further_requests import FurtherRequests
from rlmm.wire.schema import Elsewhere, Values

COMPACT_FROM = 12
"""The first version of Fetch whose lengths are varints."""
NO_BITS, ALL_BITS = 0, -1
_OFFSET_BYTES = 8
_BEHIND_CORRELATION = 8


def further_requests(
    request: ClientRequest, pieces: Pieces, *, bytes_max: int, until_s: float
) -> FurtherRequests | None:
    """The template for requests that differ from this one in the offset only; `pieces` is the
    answer to this one. None if the request is not encoded as kio encodes it.
    """
    head, records, after = pieces
    assert isinstance(head, bytes), "the first piece is the beginning of the answer, with its size"
    assert isinstance(records, Elsewhere), "the second piece is the records of the one partition"
    assert isinstance(after, bytes), "the last piece is the end of the answer"
    low, high = (_with_offset(request, offset) for offset in (NO_BITS, ALL_BITS))
    at = next(at for at in count() if low[at] != high[at])
    whole = sized(request.frame)
    if low[:at] + whole[at : at + _OFFSET_BYTES] + low[at + _OFFSET_BYTES :] != whole:
        return None
    is_compact = request.head.version >= COMPACT_FROM
    further = FurtherRequests(whole, at, b"", after, is_compact, bytes_max, until_s)
    length_bytes = len(further.head(whole, records.size_bytes)) - _BEHIND_CORRELATION
    before = head[_BEHIND_CORRELATION : len(head) - length_bytes]
    return FurtherRequests(whole, at, before, after, is_compact, bytes_max, until_s)


def _with_offset(request: ClientRequest, offset: int) -> bytes:
    (topic,) = request.body["topics"]
    (partition,) = topic["partitions"]
    asked: Values = {**topic, "partitions": [{**partition, "fetch_offset": offset}]}
    return encode_request(request.head, request.client_id, {**request.body, "topics": [asked]})

"""The next requests of a client that scans one partition, as a worker can know and answer them.

Pure. kio's schemas find where the offset stands, by writing the request with two offsets.
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
    """The rules by which a worker answers the client's next requests: those like this one about one
    partition, whose answer is `pieces`. None if the request is not written as kio writes it.
    """
    head, records, after = pieces
    assert isinstance(head, bytes), "it begins with the size"
    assert isinstance(records, Elsewhere), "of one partition"
    assert isinstance(after, bytes), "pieces end so"
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

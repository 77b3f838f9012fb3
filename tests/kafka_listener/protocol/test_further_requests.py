"""A client's further requests, known and answered by their bytes alone, beside kio's codec."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_listener.protocol.apis import SERVED, Api
from kafka_listener.protocol.codec import (
    Head,
    decode_request,
    encode_around,
    encode_request,
    encode_response,
)
from kafka_listener.protocol.fetch import Ends, Wanted, answer_of, records_answer
from kafka_listener.protocol.further_requests import further_requests
from rlm.data_plane.further_requests import FurtherRequests
from rlmm.wire.schema import Elsewhere

VERSIONS = range(SERVED[Api.FETCH].low, SERVED[Api.FETCH].high + 1)


def request(version: int, number: int, offset: int, *, max_wait: int = 500) -> bytes:
    """Of a client, with its size in front."""
    partition = {"partition": 3, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    topics = [{"topic": "orders", "topic_id": b"orders-topic-id!", "partitions": [partition]}]
    body: dict[str, Any] = {"max_wait": max_wait, "min_bytes": 1, "max_bytes": 1 << 24}
    return encode_request(Head(Api.FETCH, version, number), "a client", body | {"topics": topics})


def answer(frame: bytes, records: bytes | Elsewhere, aborted: Sequence[Any] | None) -> Any:
    asked = decode_request(frame[4:])
    wanted = Wanted((0, 0), "orders", 3, 0, 1 << 20)
    told = {(0, 0): records_answer(wanted, Ends(900, 800, 7), records, aborted)}
    return asked, answer_of(asked.body, told)


def rules(frame: bytes, size: int, aborted: Sequence[Any] | None = None) -> FurtherRequests:
    elsewhere = Elsewhere(size)
    asked, body = answer(frame, elsewhere, aborted)
    pieces = encode_around(asked.head, body, (elsewhere,))
    found = further_requests(asked, pieces, bytes_max=1 << 20, until_s=0.1)
    assert found is not None
    return found


@given(
    st.sampled_from(VERSIONS),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**63 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(0, 20_000),
    st.integers(0, 20_000),
    st.sampled_from([None, ()]),
)
def test_the_next_request_is_known_and_its_answer_is_the_codecs(
    version: int, first: int, then: int, number: int, size: int, next_size: int, aborted: Any
) -> None:
    known = rules(request(version, 1, first), size, aborted)
    again = request(version, number, then)
    assert known.are_continued_by(again, then)
    batches = b"b" * next_size
    asked, body = answer(again, batches, aborted)
    whole = encode_response(asked.head, body)
    assert known.head(again, next_size) + batches + known.after == whole


@pytest.mark.parametrize("version", VERSIONS)
def test_any_other_request_is_not_taken_for_it(version: int) -> None:
    known = rules(request(version, 1, 5), 100)
    right = request(version, 2, 70)
    assert known.are_continued_by(right, 70)
    assert not known.are_continued_by(right, 71)
    assert not known.are_continued_by(right[:-1], 70)
    assert not known.are_continued_by(right + b"\0", 70)
    assert not known.are_continued_by(b"", 70)
    assert not known.are_continued_by(request(version, 2, 70, max_wait=501), 70)
    for at in {*range(len(right))} - {*range(8, 12)}:
        other = bytearray(right)
        other[at] ^= 1
        assert not known.are_continued_by(bytes(other), 70), at


def test_a_request_that_is_written_otherwise_has_no_further_ones() -> None:
    elsewhere = Elsewhere(100)
    asked, body = answer(request(12, 1, 5) + b"\0\0\0", elsewhere, None)
    pieces = encode_around(asked.head, body, (elsewhere,))
    assert further_requests(asked, pieces, bytes_max=1, until_s=1.0) is None

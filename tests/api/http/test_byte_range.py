"""Byte ranges, as a table."""

from __future__ import annotations

import pytest
from starlette.exceptions import HTTPException

from api.http.byte_range import ByteRange, parse_range
from kafka_formats.errors import InvalidRequest
from tests.api.fakes import BASE, FakeStream, make_node, segment_uuid

LOG = f"{BASE}/segments/{segment_uuid(0)}/log"
HUGE = "9" * 30


@pytest.mark.parametrize(
    ("header", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=0-99", 0, 100),
        ("bytes=10-", 10, 100),
        ("bytes=99-", 99, 100),
        ("bytes=-1", 99, 100),
        ("bytes=-100", 0, 100),
        (f"bytes=-{HUGE}", 0, 100),
        ("bytes=5-1000", 5, 100),
        (f"bytes=5-{HUGE}", 5, 100),
        ("BYTES=1-2", 1, 3),
        (" bytes=1-2 ".strip(), 1, 3),
    ],
)
def test_a_range_is_cut_to_the_bytes_there_are(header: str, start: int, end: int) -> None:
    assert parse_range(header, 100) == ByteRange(start, end, 100, partial=True)


@pytest.mark.parametrize("header", [None, "lines=1-2", "", "none"])
def test_no_range_or_another_unit_is_the_whole(header: str | None) -> None:
    assert parse_range(header, 100) == ByteRange(0, 100, 100, partial=False)


@pytest.mark.parametrize("header", ["bytes=100-", "bytes=100-200", f"bytes={HUGE}-", "bytes=-0"])
def test_a_range_behind_the_end_cannot_be_satisfied(header: str) -> None:
    with pytest.raises(HTTPException) as caught:
        parse_range(header, 100)
    assert caught.value.status_code == 416
    assert caught.value.headers is not None
    assert caught.value.headers["Content-Range"] == "bytes */100"


def test_no_range_of_nothing_can_be_satisfied() -> None:
    for header in ("bytes=0-", "bytes=-5"):
        with pytest.raises(HTTPException):
            parse_range(header, 0)


@pytest.mark.parametrize(
    "header",
    [
        "bytes=",
        "bytes=-",
        "bytes=a-b",
        "bytes=5-4",
        "bytes=0-1,5-6",
        "bytes=--5",
        "bytes = 1-2",
        "bytes=1 - 2",
        "bytes=0x1-0x2",
        f"bytes={'9' * 41}-",
    ],
)
def test_a_malformed_range_is_refused_by_name(header: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_range(header, 100)
    assert caught.value.field == "Range"


async def test_a_log_is_answered_whole_or_in_part() -> None:
    node = make_node()
    async with node.client() as client:
        node.rlm.stream = FakeStream([b"x" * 1000])
        whole = await client.get(LOG)
        assert (whole.status_code, whole.headers["content-length"]) == (200, "1000")
        assert whole.headers["accept-ranges"] == "bytes"
        node.rlm.stream = FakeStream([b"x" * 5, b"y" * 5])
        part = await client.get(LOG, headers={"Range": "bytes=90-99"})
        assert (part.status_code, part.content) == (206, b"xxxxxyyyyy")
        assert part.headers["content-range"] == "bytes 90-99/1000"
        outside = await client.get(LOG, headers={"Range": "bytes=1000-"})
        assert (outside.status_code, outside.json()["kind"]) == (416, "range_not_satisfiable")
        assert outside.headers["content-range"] == "bytes */1000"
    assert node.rlm.asked == [(segment_uuid(0), 0, 1000), (segment_uuid(0), 90, 100)]


async def test_a_range_counts_only_for_the_segment_that_if_range_names() -> None:
    node = make_node()
    async with node.client() as client:
        for etag, status in ((f'"{segment_uuid(0)}"', 206), ('"other"', 200)):
            node.rlm.stream = FakeStream([b"x" * (10 if status == 206 else 1000)])
            headers = {"Range": "bytes=0-9", "If-Range": etag}
            assert (await client.get(LOG, headers=headers)).status_code == status

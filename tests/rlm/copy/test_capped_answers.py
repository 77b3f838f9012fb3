"""A broker's own limit (`fetch.max.bytes`, a quota) may cut an answer behind its first batch, which
then looks like the last one of its file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pytest

from kafka_formats.leader_epoch_checkpoint import EpochEntry
from kafka_formats.record_batch import HEADER_BYTES, parse_header
from rlm.copy.replica_batches import HoleWalk
from tests.rlm.copy import test_replica_batches
from tests.rlm.copy.test_turned_base_offsets import claims

LINEAGE = (EpochEntry(1, 0),)
FILES = (((0, 1), (2, 2), (3, 5)), ((6, 6), (7, 7)), ((8, 11),), ((12, 12), (13, 15), (16, 17)))
"""The batches of each file. One of them stands alone in its file."""

ALL = [each for file in FILES for each in file]
HOLES = [(first, last) for first, _ in ALL for _, last in ALL if first <= last <= first + 5]


@dataclass(frozen=True)
class Broker:
    """Answers as Kafka does, at most `bytes_max`, but one whole batch. `gone`, and `turned`: the
    place and the base offset of one batch. `indexed`: it searches from the offset's place on.
    """

    bytes_max: int
    indexed: bool
    gone: tuple[tuple[int, int], ...] = ()
    turned: tuple[tuple[int, int], int] | None = None
    log_start: int = 0

    def answer(self, offset: int) -> bytes:
        if offset < self.log_start:
            return b""
        at = max(index for index, file in enumerate(FILES) if file[0][0] <= max(offset, 0))
        for file in FILES[at:]:
            found = list(self._from(file, offset))
            if found:
                return b"".join(found)[: max(self.bytes_max, len(found[0]))]
        return b""

    def _from(self, file: tuple[tuple[int, int], ...], offset: int) -> Iterator[bytes]:
        begun = False
        for index, place in enumerate(file):
            data = self._data(place)
            skips = self.indexed and any(first <= offset for first, _ in file[index + 1 :])
            reaches = parse_header(data, 0, source="", position=0).last_offset >= offset
            begun = begun or (reaches and not skips)
            if begun and place not in self.gone:
                yield data

    def _data(self, place: tuple[int, int]) -> bytes:
        data = batch(*place)
        if self.turned is not None and self.turned[0] == place:
            return claims(data, self.turned[1])
        return data


@cache
def batch(first: int, last: int) -> bytes:
    return test_replica_batches.batch(first, last)


answered = cache(Broker.answer)


def taken(
    broker: Broker, hole: tuple[int, int], *, free_from: int | None = None, thinned: bool = False
) -> bytes:
    start = broker.log_start
    walk = HoleWalk(*hole, LINEAGE, "its log", free_from, thinned=thinned, start=start)
    data = b""
    while not walk.done:
        data += walk.take(answered(broker, walk.question)).data
    return data


def there(hole: tuple[int, int], *, without: tuple[tuple[int, int], ...] = ()) -> list[bytes]:
    return [
        batch(first, last)
        for first, last in ALL
        if hole[0] <= first and last <= hole[1] and (first, last) not in without
    ]


LARGE = len(batch(3, 5))
LIMITS = [1, LARGE, LARGE + 30, LARGE + 70, 100_000]


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("bytes_max", LIMITS)
def test_a_turned_base_offset_deceives_no_hole(bytes_max: int, indexed: bool) -> None:
    for place in ALL:
        for offset in range(20):
            if offset == place[0]:
                continue
            broker = Broker(bytes_max, indexed, turned=(place, offset))
            for hole in HOLES:
                data = taken(broker, hole)
                for each in there(hole, without=(place,)):
                    data = data.replace(each, b"")
                assert data == b"", (place, offset, hole)


@pytest.mark.parametrize("thinned", [True, False])
@pytest.mark.parametrize("log_start", [0, 6, 8])
@pytest.mark.parametrize("bytes_max", LIMITS)
def test_a_good_replica_fills_every_hole(bytes_max: int, log_start: int, thinned: bool) -> None:
    broker = Broker(bytes_max, indexed=True, log_start=log_start)
    for hole in HOLES:
        if hole[0] >= log_start:
            assert taken(broker, hole, thinned=thinned) == b"".join(there(hole)), hole


@pytest.mark.parametrize("thinned", [True, False])
def test_a_gap_hides_none_behind_it_where_no_limit_cuts(thinned: bool) -> None:
    for gone in ALL[:-1]:
        broker = Broker(100_000, indexed=True, gone=(gone,))
        for hole in HOLES:
            found = b"".join(there(hole, without=(gone,)))
            assert taken(broker, hole, thinned=thinned) == found, (gone, hole)


INSIDE = [(offset, first, last) for first, last in ALL for offset in range(first + 1, last + 1)]
"""Log starts that DeleteRecords put inside a batch, with the batch."""


@pytest.mark.parametrize(("log_start", "first", "last"), INSIDE)
@pytest.mark.parametrize("bytes_max", LIMITS)
def test_a_hole_at_a_log_start_inside_a_batch_is_filled_with_that_batch(
    bytes_max: int, log_start: int, first: int, last: int
) -> None:
    broker = Broker(bytes_max, indexed=True, log_start=log_start)
    for end in [end for _, end in ALL if last <= end < ALL[-1][1]]:
        found = taken(broker, (log_start, end), free_from=0)
        hidden = () if bytes_max == LIMITS[-1] else ((first, last),)
        assert found in {b"".join(there((first, end), without=each)) for each in ((), hidden)}, end
        if end == last and first > ALL[2][1]:  # longer answers follow
            assert found or bytes_max <= len(batch(first, last)) + HEADER_BYTES


@pytest.mark.parametrize(("log_start", "first", "last"), INSIDE)
@pytest.mark.parametrize("bytes_max", LIMITS)
def test_a_turned_base_offset_deceives_no_hole_at_a_log_start_inside_a_batch(
    bytes_max: int, log_start: int, first: int, last: int
) -> None:
    for place in ALL:
        for offset in set(range(20)) - {place[0], log_start}:  # see the module on the latter
            for indexed in (True, False):
                broker = Broker(bytes_max, indexed, turned=(place, offset), log_start=log_start)
                for end in [end for _, end in ALL if last <= end]:
                    data = taken(broker, (log_start, end), free_from=0)
                    for each in there((first, end), without=(place,)):
                        data = data.replace(each, b"")
                    assert data == b"", (place, offset, indexed, end)


@pytest.mark.parametrize(("log_start", "first", "last"), INSIDE[1:])
def test_a_batch_with_the_log_start_fills_the_hole_up_to_ours_though_the_next_ones_are_gone(
    log_start: int, first: int, last: int
) -> None:
    """Not that of the first batch: no later answer is long enough to show that none is cut."""
    for end in [end for _, end in ALL if last < end <= 12]:
        gone = tuple(each for each in ALL if last < each[0] <= end)
        broker = Broker(100_000, indexed=True, gone=gone, log_start=log_start)
        assert taken(broker, (log_start, last), free_from=0) == batch(first, last)

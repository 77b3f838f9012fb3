"""Many small objects read whole, in the order of their keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Barrier, Event, Lock, Thread

import pytest

from kafka_formats.errors import NotFound, RetryLater
from pipeline import small_objects
from pipeline.small_objects import BUFFER_BYTES, FILE_READERS, KEYS_A_RUN, SmallObjects
from rsm_backends.store_config import StoreConfig

BYTES_MAX = 2 * BUFFER_BYTES


@pytest.fixture
def objects(tmp_path: Path) -> Iterator[SmallObjects]:
    config = StoreConfig(name="main", kind="filesystem", path=tmp_path)
    with closing(SmallObjects(config, bytes_max=BYTES_MAX)) as opened:
        yield opened


@pytest.mark.parametrize(
    "count", [0, 1, FILE_READERS, FILE_READERS + 1, FILE_READERS * KEYS_A_RUN + 1]
)
def test_each_is_read_whole_and_in_order(objects: SmallObjects, tmp_path: Path, count: int) -> None:
    for number in range(count):
        (tmp_path / f"{number}").write_bytes(b"%d" % number)
    assert objects.read([f"{number}" for number in range(count)]) == [
        b"%d" % number for number in range(count)
    ]


@pytest.mark.parametrize(
    "size", [0, BUFFER_BYTES - 1, BUFFER_BYTES, BUFFER_BYTES + 1, BYTES_MAX, BYTES_MAX + 1]
)
def test_a_longer_one_is_read_up_to_the_bound(
    objects: SmallObjects, tmp_path: Path, size: int
) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    (tmp_path / "long").write_bytes(data[:size])
    (tmp_path / "short").write_bytes(b"short")
    assert objects.read(["long", "short"]) == [data[: min(size, BYTES_MAX)], b"short"]


def test_one_that_is_gone_is_told_and_the_others_are_read(
    objects: SmallObjects, tmp_path: Path
) -> None:
    (tmp_path / "there").write_bytes(b"data")
    gone, there = objects.read(["gone", "there"])
    assert isinstance(gone, NotFound)
    assert there == b"data"


def test_a_slow_disk_is_read_by_all_at_once(
    objects: SmallObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = Barrier(FILE_READERS, timeout=60)

    def slow(self: SmallObjects, key: str, buffer: memoryview) -> bytes:
        together.wait()
        return key.encode()

    monkeypatch.setattr(SmallObjects, "_one", slow)
    keys = [f"{number}" for number in range(FILE_READERS)]
    assert objects.read(keys) == [key.encode() for key in keys]


def test_a_quick_one_by_one_reader_after_the_other(
    objects: SmallObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, is_alone = Lock(), []

    def quick(self: SmallObjects, key: str, buffer: memoryview) -> bytes:
        is_alone.append(alone.acquire(blocking=False))
        Event().wait(0.002)
        alone.release()
        return b""

    monkeypatch.setattr(small_objects, "FILES_TURN_S", 60.0)
    monkeypatch.setattr(SmallObjects, "_one", quick)
    objects.read([f"{number}" for number in range(4 * FILE_READERS)])
    assert is_alone == [True] * 4 * FILE_READERS


def test_what_is_not_read_yet_ends_when_it_is_closed(
    objects: SmallObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [f"{number}" for number in range(2 * FILE_READERS)]
    for key in keys:
        (tmp_path / key).write_bytes(b"data")
    begun, go_on = Event(), Event()
    one = SmallObjects._one

    def held(self: SmallObjects, key: str, buffer: memoryview) -> object:
        begun.set()
        assert go_on.wait(30)
        return one(self, key, buffer)

    monkeypatch.setattr(SmallObjects, "_one", held)
    raised: list[BaseException] = []

    def read() -> None:
        try:
            objects.read(keys)
        except BaseException as error:
            raised.append(error)

    reading = Thread(target=read)
    reading.start()
    assert begun.wait(30)
    objects._ended.set()
    go_on.set()
    reading.join(30)
    assert [type(each) for each in raised] == [RetryLater]


def test_no_more_read_at_once_than_the_store_s_connections() -> None:
    few = StoreConfig(name="main", kind="s3", bucket="tier", region="eu-1", connections_max=3)
    with closing(SmallObjects(few, bytes_max=BYTES_MAX)) as objects:
        assert objects._threads._max_workers == 3

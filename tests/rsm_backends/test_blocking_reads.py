"""Reads by plain calls, on files and on S3: whole, repeated where that helps, or a clear error."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import InvalidRequest, NotFound, Refused, RetryLater
from rsm_backends import s3_blocking
from rsm_backends.blocking_reads import BlockingStore, open_blocking
from rsm_backends.store_config import StoreConfig
from tests.rsm_backends.stores import opened

DATA = bytes(range(256)) * 5_000
KEY = "topic-id/0/00000000000000000000-x.log"


class Clock:
    """Time that passes by waiting, and where it is said by looking at it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.each_look_s = 0.0
        self.waits: list[float] = []

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    def monotonic(self) -> float:
        self.now += self.each_look_s
        return self.now


@contextmanager
def blocking(config: StoreConfig, clock: Clock | None = None) -> Iterator[BlockingStore]:
    clock = clock or Clock()
    store = open_blocking(
        config, wait=clock.wait, monotonic=clock.monotonic, random_fraction=lambda: 0.5
    )
    try:
        yield store
    finally:
        store.close()


@pytest.fixture(params=["filesystem", "s3"])
async def config(
    request: pytest.FixtureRequest, tmp_path: Path, moto_store_config: StoreConfig
) -> StoreConfig:
    """A store that holds DATA at KEY."""
    found = (
        moto_store_config
        if request.param == "s3"
        else StoreConfig(name="files", kind="filesystem", path=tmp_path)
    )
    async with opened(found) as store:
        await store.put(KEY, DATA, crc32c=crc32c(DATA))
    return found


def test_any_range_is_read_into_the_callers_memory(config: StoreConfig) -> None:
    buffer = memoryview(bytearray(300_000))
    with blocking(config) as store:
        found = store.open(KEY)
        for start, size in ((0, 300_000), (1, 1), (299_999, 300_000), (len(DATA) - 5, 300_000)):
            filled = found.read_into(buffer[:size], start)
            assert buffer[:filled] == DATA[start : start + size]
        assert found.read_into(buffer, len(DATA)) == 0
        assert found.read_into(buffer, len(DATA) + 7) == 0
        assert found.read_into(buffer[:0], 3) == 0
        found.close()
        found.close()


def test_many_threads_read_one_object_at_once(config: StoreConfig) -> None:
    pieces: dict[int, bytes] = {}
    with blocking(config) as store:
        found = store.open(KEY)

        def read(at: int) -> None:
            buffer = memoryview(bytearray(160_000))
            pieces[at] = bytes(buffer[: found.read_into(buffer, at)])

        threads = [threading.Thread(target=read, args=(at,)) for at in range(0, 1_280_000, 160_000)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found.close()
    assert b"".join(pieces[at] for at in sorted(pieces)) == DATA


def test_a_read_of_s3_tells_how_long_the_object_is(config: StoreConfig) -> None:
    with blocking(config) as store:
        found = store.open(KEY)
        assert found.object_bytes is None
        found.read_into(memoryview(bytearray(9)), 5)
        assert found.object_bytes == (len(DATA) if config.kind == "s3" else None)


def test_in_order_a_read_goes_on_where_the_last_one_ended(config: StoreConfig) -> None:
    buffer = memoryview(bytearray(300_000))
    read = b""
    with blocking(config) as store:
        found = store.open(KEY, in_order_to=len(DATA))
        while filled := found.read_into(buffer, len(read)):
            read += buffer[:filled]
        assert read == DATA
        assert found.object_bytes == (len(DATA) if config.kind == "s3" else None)
        found.close()


def test_what_is_left_in_the_middle_is_not_what_the_next_reader_gets(config: StoreConfig) -> None:
    buffer = memoryview(bytearray(1_000))
    with blocking(config) as store:
        for start in (7, 100_003, 0):
            found = store.open(KEY, in_order_to=len(DATA))
            for at in (start, start + 1_000, start + 5_000):  # the last one is a jump
                assert found.read_into(buffer, at) == 1_000
                assert buffer == DATA[at : at + 1_000]
            found.close()
            found.close()


async def test_a_key_that_a_url_cannot_hold_as_it_is_is_read_too(
    moto_store_config: StoreConfig,
) -> None:
    key = "topic id/0/ä+%41.log"
    async with opened(moto_store_config) as store:
        await store.put(key, b"0123456789", crc32c=crc32c(b"0123456789"))
    buffer = memoryview(bytearray(4))
    with blocking(moto_store_config) as reads:
        assert reads.open(key).read_into(buffer, 3) == 4
    assert bytes(buffer) == b"3456"


async def test_a_usual_key_is_read_past_botocore_as_it_is_read_by_it(
    moto_store_config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(moto_store_config) as store:
        await store.put(KEY, DATA, crc32c=crc32c(DATA))

    def read(start: int, size: int) -> tuple[bytes, int | None]:
        buffer = memoryview(bytearray(size))
        with blocking(moto_store_config) as reads:
            found = reads.open(KEY)
            filled = found.read_into(buffer, start)
            return bytes(buffer[:filled]), found.object_bytes

    def none(*_: object) -> None:
        return None

    inside = ((0, len(DATA)), (1, 1), (len(DATA) - 5, 300_000))
    for start, size in (*inside, (len(DATA), 9), (len(DATA) + 7, 9)):
        with monkeypatch.context() as patched:
            patched.setattr(s3_blocking.S3Reads, "_get", none)
            by_the_rule = read(start, size)
        assert read(start, size) == by_the_rule
    monkeypatch.setattr(s3_blocking.S3Reads, "_general_get", none)
    for start, size in inside:
        assert read(start, size) == (DATA[start : start + size], len(DATA))


def test_what_is_not_there_is_not_found_at_once(config: StoreConfig) -> None:
    clock = Clock()
    with blocking(config, clock) as store, pytest.raises(NotFound):
        store.open("topic-id/0/nothing").read_into(memoryview(bytearray(9)), 0)
    assert clock.waits == []


@pytest.fixture
def made_clients(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The buckets of the clients that were made."""
    made: list[str] = []
    make = s3_blocking._client

    def noted(config: StoreConfig) -> Any:
        made.append(config.bucket)
        return make(config)

    monkeypatch.setattr(s3_blocking, "_client", noted)
    monkeypatch.setattr(s3_blocking, "_kept", {})
    return made


async def test_the_next_reader_of_a_store_takes_the_client_of_the_last(
    moto_store_config: StoreConfig, made_clients: list[str]
) -> None:
    async with opened(moto_store_config) as store:
        await store.put(KEY, DATA, crc32c=crc32c(DATA))
    buffer = memoryview(bytearray(len(DATA)))
    for _ in range(3):
        with blocking(moto_store_config) as reader:
            assert reader.open(KEY).read_into(buffer, 0) == len(DATA)
            reader.close()
    assert len(made_clients) == 1
    assert buffer == DATA


def test_two_readers_at_once_have_a_client_each(
    moto_store_config: StoreConfig, made_clients: list[str]
) -> None:
    with blocking(moto_store_config), blocking(moto_store_config):
        assert len(made_clients) == 2
    with blocking(replace(moto_store_config, secret_access_key="another")):
        assert len(made_clients) == 3


def test_a_reader_that_is_closed_twice_leaves_its_client_once(
    moto_store_config: StoreConfig, made_clients: list[str]
) -> None:
    with blocking(moto_store_config) as first:
        pass
    with blocking(moto_store_config):
        first.close()
        with blocking(moto_store_config):
            assert len(made_clients) == 2


def test_a_client_that_looks_for_its_credentials_does_so_anew(
    moto_store_config: StoreConfig, made_clients: list[str]
) -> None:
    config = replace(moto_store_config, access_key_id=None, secret_access_key=None)
    for _ in range(2):
        with blocking(config):
            pass
    assert len(made_clients) == 2


def test_few_clients_are_kept(moto_store_config: StoreConfig, made_clients: list[str]) -> None:
    for number in range(s3_blocking.KEPT_CLIENTS + 1):
        with blocking(replace(moto_store_config, bucket=f"bucket-{number}")):
            pass
    assert len(s3_blocking._kept) == s3_blocking.KEPT_CLIENTS
    with blocking(replace(moto_store_config, bucket="bucket-0")):
        assert made_clients[-1] == "bucket-0", "the oldest one made way"


def test_a_store_in_memory_is_refused() -> None:
    config = StoreConfig(name="m", kind="memory")
    with pytest.raises(InvalidRequest, match="another"), blocking(config):
        pass


@contextmanager
def cutting_server(answers: list[bytes], requests: list[bytes] | None = None) -> Iterator[str]:
    """A server that sends each answer to one connection, which it then closes. It says so: a client
    that hears of it late sends its next request there, and needs an answer more.
    """
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for answer in answers:
            connection, _ = listener.accept()
            with connection:
                asked = b""
                while b"\r\n\r\n" not in asked and (more := connection.recv(65_536)):
                    asked += more  # what is left unread would reset the connection
                if requests is not None:
                    requests.append(asked)
                connection.sendall(answer.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    thread.join(timeout=30)
    listener.close()


def partial(body: bytes, length: int, start: int = 0) -> bytes:
    told = f"bytes {start}-9/10"
    head = f"HTTP/1.1 206 OK\r\nContent-Length: {length}\r\nContent-Range: {told}\r\n\r\n"
    return head.encode() + body


@pytest.fixture
def unused() -> StoreConfig:
    """Where nobody listens yet."""
    return StoreConfig(
        name="s", kind="s3", bucket="b", access_key_id="k", secret_access_key="s",
        addressing_style="path", attempts_max=3, read_timeout_s=20, endpoint_url="http://127.0.0.1",
    )  # fmt: skip


def test_a_body_that_was_cut_off_is_read_again_whole(unused: StoreConfig) -> None:
    clock = Clock()
    buffer = memoryview(bytearray(10))
    busy = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n"
    answers = [partial(b"0123", 10), busy, partial(b"0123456789", 10)]
    with (
        cutting_server(answers) as url,
        blocking(replace(unused, endpoint_url=url), clock) as store,
    ):
        assert store.open("k").read_into(buffer, 0) == 10
    assert bytes(buffer) == b"0123456789"
    assert clock.waits == [0.05, 0.1]


def test_an_answer_that_is_cut_off_in_order_is_asked_for_again_from_there(
    unused: StoreConfig,
) -> None:
    clock, requests = Clock(), list[bytes]()
    buffer, read = memoryview(bytearray(3)), b""
    answers = [partial(b"0123", 10), partial(b"3456789", 7, start=3)]
    with (
        cutting_server(answers, requests) as url,
        blocking(replace(unused, endpoint_url=url), clock) as store,
    ):
        found = store.open("k", in_order_to=10)
        for size in (3, 3, 3, 1):
            assert found.read_into(buffer, len(read)) == size
            read += buffer[:size]
        found.close()
    assert read == b"0123456789"
    ranges = [line for asked in requests for line in asked.split(b"\r\n") if b"bytes=" in line]
    assert ranges == [b"Range: bytes=0-9", b"Range: bytes=3-9"]
    assert clock.waits == [0.05]


def test_an_answer_in_order_that_begins_elsewhere_is_refused(unused: StoreConfig) -> None:
    with (
        cutting_server([partial(b"0123456789", 10)] * 3) as url,
        blocking(replace(unused, endpoint_url=url)) as store,
        pytest.raises(RetryLater, match="Content-Range is 'bytes 0-9/10', bytes 3 to 9"),
    ):
        store.open("k", in_order_to=10).read_into(memoryview(bytearray(4)), 3)


@contextmanager
def talking_server(say: Callable[[socket.socket], None]) -> Iterator[str]:
    """Its one connection is heard, then `say` has it until the client is gone."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.recv(65_536)
            say(connection)

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    thread.join(timeout=30)
    listener.close()


def test_a_body_that_drips_ends_at_the_deadline_and_not_with_the_body(unused: StoreConfig) -> None:
    """Two bytes come, the others never do, and time is over by then."""

    def say(connection: socket.socket) -> None:
        connection.sendall(partial(b"01", 10))
        connection.recv(1)

    clock = Clock()
    config = replace(unused, attempts_max=1, read_timeout_s=30.0, deadline_s=50.0)
    with (
        talking_server(say) as url,
        blocking(replace(config, endpoint_url=url), clock) as store,
    ):
        found = store.open("k", in_order_to=10)
        assert found.read_into(memoryview(bytearray(1)), 0) == 1
        clock.each_look_s = 100.0
        with pytest.raises(RetryLater, match="did not end within 50 s"):
            found.read_into(memoryview(bytearray(9)), 1)


@pytest.mark.parametrize(
    ("begins", "goes_on"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 403 No\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"a: b\r\n"),
        (
            b"HTTP/1.1 206 OK\r\nContent-Range: bytes 0-9/10\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n9\r\n012345678\r\n0\r\n",
            b"a: b\r\n",
        ),
    ],
    ids=["interim answers", "trailers of an error", "trailers of an object"],
)
def test_lines_without_end_end_at_the_deadline(
    unused: StoreConfig, begins: bytes, goes_on: bytes
) -> None:
    def say(connection: socket.socket) -> None:
        connection.sendall(begins)
        while True:
            connection.sendall(goes_on)

    clock = Clock()
    clock.each_look_s = 1.0
    config = replace(unused, attempts_max=1, read_timeout_s=30.0, deadline_s=50.0)
    with (
        talking_server(say) as url,
        blocking(replace(config, endpoint_url=url), clock) as store,
        pytest.raises(RetryLater),
    ):
        store.open("k").read_into(memoryview(bytearray(10)), 0)
    assert 50 <= clock.now < 200


def test_what_the_store_refuses_is_told_in_its_words(unused: StoreConfig) -> None:
    body = b"<Error><Code>AccessDenied</Code><Message>no right to read</Message></Error>"
    refused = b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    with (
        cutting_server([refused] * 2) as url,
        blocking(replace(unused, endpoint_url=url)) as store,
        pytest.raises(Refused, match="no right to read"),
    ):
        store.open("k").read_into(memoryview(bytearray(10)), 0)


def test_attempts_end_with_the_last_error(unused: StoreConfig) -> None:
    answers = [partial(b"0123", 10)] * 3
    with (
        cutting_server(answers) as url,
        blocking(replace(unused, endpoint_url=url)) as store,
        pytest.raises(RetryLater, match="at byte 4, 6 before its end"),
    ):
        store.open("k").read_into(memoryview(bytearray(10)), 0)


def test_no_attempt_begins_behind_the_deadline(unused: StoreConfig) -> None:
    clock = Clock()
    answers = [partial(b"0123", 10)]
    with (
        cutting_server(answers) as url,
        blocking(replace(unused, endpoint_url=url, deadline_s=0.04), clock) as store,
        pytest.raises(RetryLater),
    ):
        store.open("k").read_into(memoryview(bytearray(10)), 0)
    assert clock.waits == []


def test_no_object_is_missing_in_a_folder_whose_disk_is_not_mounted(tmp_path: Path) -> None:
    """A mount point is an empty folder: a reader must not take it for a tier that expired."""
    config = StoreConfig(name="files", kind="filesystem", path=tmp_path)
    with blocking(config) as store, pytest.raises(RetryLater, match="is empty: mount its disk"):
        store.open(KEY)
    (tmp_path / ".strandline" / "temporary").mkdir(parents=True)
    with blocking(config) as store, pytest.raises(RetryLater, match="is empty: mount its disk"):
        store.open(KEY)
    (tmp_path / "topic-id").mkdir()
    with blocking(config) as store, pytest.raises(NotFound):
        store.open(KEY)

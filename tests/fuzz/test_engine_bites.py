"""The engine finds bugs: planted ones, each within a few thousand inputs."""

from __future__ import annotations

import json
import resource
import struct
import sys
import threading
import zlib
from collections.abc import Callable
from functools import partial

import pytest

from kafka_formats.compression import Codec, compress
from kafka_formats.errors import CorruptData
from kafka_formats.kafka_uuid import Uuid
from tests.fuzz import engine, repairs
from tests.fuzz.engine import BrokenPromiseError, Target, fuzz
from tests.fuzz.format_targets import captured
from tests.fuzz.mutation import GROUP_INPUTS

COUNT = 4_000


def _unchecked_length(data: bytes) -> bytes:
    """Takes room for what a length says before it looks whether it is there."""
    if len(data) < 4:
        raise _corrupt("too short")
    size = int.from_bytes(data[:4], "big", signed=True)
    if not 0 <= size < 1 << 28:
        raise _corrupt("impossible length")
    room = bytearray(size)
    room[: len(data) - 4] = data[4:]
    return bytes(room)


def _escaping_struct_error(data: bytes) -> object:
    try:
        return json.loads(data)["count"]
    except (ValueError, TypeError):
        raise _corrupt("no JSON") from None


def _behind_a_checksum(data: bytes) -> object:
    """Only an input with the right CRC gets to the unchecked count."""
    if len(data) < 10 or zlib.crc32(data[4:]) != int.from_bytes(data[:4], "big"):
        raise _corrupt("fails its CRC")
    count = struct.unpack_from(">h", data, 4)[0]
    return [data[6 + number] for number in range(count)]


def _repair_crc32(data: bytes) -> bytes:
    return zlib.crc32(data[4:]).to_bytes(4, "big") + data[4:]


def _unbounded_decompress(data: bytes) -> bytes:
    try:
        return zlib.decompress(data, wbits=31)
    except zlib.error as error:
        raise _corrupt(str(error)) from None


def _endless(data: bytes) -> None:
    """A step of zero never gets to the end."""
    at = 0
    while at < len(data):
        at += data[at]


def _endless_message(data: bytes) -> None:
    raise _corrupt(f"{data!r} is wrong") if len(data) > 2_000 else _corrupt("short")


def _line_break_in_message(data: bytes) -> None:
    if b"\n" in data:
        raise _corrupt(f"{data.decode('latin-1')[:40]} is wrong")


def _wrong_kind_of_ours(data: bytes) -> Uuid:
    return Uuid(data)


def _corrupt(message: str) -> CorruptData:
    return CorruptData(message, source="planted", position=0)


GOOD_TEXT = [b"a line\nanother", b"x" * 1_990]
PLANTED: dict[str, tuple[Callable[[bytes], object], list[bytes], str]] = {
    "an unchecked length": (_unchecked_length, [b"\0\0\0\x05hello"], "bytes allocated"),
    "an error that is not caught": (_escaping_struct_error, [b'{"count": 1}'], "KeyError"),
    "an unbounded decompress": (
        _unbounded_decompress,
        [compress(Codec.GZIP, b"abc" * 20_000)],
        "bytes allocated",
    ),
    "a loop without an end": (_endless, [b"\x01\x02\x03\x01"], "no end within"),
    "a message without an end": (_endless_message, GOOD_TEXT, "a message of"),
    "a line break in a message": (_line_break_in_message, [b"one line"], "a message of"),
    "another kind of error": (_wrong_kind_of_ours, [bytes(16)], "InvalidRequest"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "CPU_DEADLINE_S", 0.2)
    run, seeds, expected = PLANTED[name]
    target = Target(name, (), _unless_seed(run, seeds), lambda: seeds)
    with pytest.raises(BrokenPromiseError, match=expected) as caught:
        fuzz(target, seed=1, count=COUNT)
    data = bytes.fromhex(str(caught.value).rsplit(" ", 1)[1])
    assert f"{len(data)} bytes:" in str(caught.value)


FAR_OVER = {name: planted for name, planted in PLANTED.items() if "decompress" not in name}
"""What a run without counting finds too: of the bounds of memory, only what is far over them."""


@pytest.mark.parametrize("name", FAR_OVER)
def test_a_planted_bug_is_found_where_allocations_are_not_counted(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "CPU_DEADLINE_S", 0.2)
    limit = resource.getrlimit(resource.RLIMIT_AS)
    run, seeds, expected = FAR_OVER[name]
    target = Target(name, (), _unless_seed(run, seeds), lambda: seeds)
    with pytest.raises(BrokenPromiseError, match=expected.replace("bytes allocated", "Memory")):
        fuzz(target, seed=1, count=COUNT, first=GROUP_INPUTS, traced_every=1_000)
    assert resource.getrlimit(resource.RLIMIT_AS) == limit


def _heap_with_room(*, at_its_end: bool) -> bytearray:
    """A large block freed teaches glibc to serve the next ones from its heap, and to keep that."""
    bytearray((32 << 20) - 8_192)
    blocks = [bytearray(15 << 20) for _ in range(3)]
    last = bytearray(0 if at_its_end else 1 << 20)
    del blocks
    return last


@pytest.mark.parametrize("threads", [0, 12])
@pytest.mark.parametrize("at_its_end", [False, True])
def test_memory_that_the_allocator_kept_hides_no_bug(at_its_end: bool, threads: int) -> None:
    all_are_there = threading.Barrier(threads + 1)
    over = threading.Event()

    def another_arena() -> None:
        kept.append(_heap_with_room(at_its_end=at_its_end))
        all_are_there.wait(60)
        over.wait(60)

    kept = [_heap_with_room(at_its_end=at_its_end) for _ in range(3)]
    others = [threading.Thread(target=another_arena) for _ in range(threads)]
    for thread in others:
        thread.start()
    all_are_there.wait(60)
    target = Target("greedy", (), _unless_seed(lambda _: bytearray(40 << 20), [b""]), lambda: [b""])
    try:
        with pytest.raises(BrokenPromiseError, match="MemoryError"):
            fuzz(target, seed=1, count=1, first=GROUP_INPUTS, traced_every=1_000)
    finally:
        over.set()
        for thread in others:
            thread.join()


def test_a_cache_that_grows_at_some_input_is_no_broken_promise() -> None:
    cache: dict[bytes, bytes] = {}

    def remember(data: bytes) -> None:
        if len(cache) < COUNT:
            cache[data] = data

    fuzz(Target("remembers", (), remember, lambda: [b"seed"], errors=()), seed=1, count=COUNT)
    assert sys.getsizeof(cache) > Target("", (), len, list).constant_bytes


def test_one_group_of_a_few_has_its_allocations_counted() -> None:
    target = Target("one of four", (), len, lambda: [b"seed"], errors=())
    groups = 10 * GROUP_INPUTS
    assert fuzz(target, seed=1, count=groups, traced_every=4).traced == 3 * GROUP_INPUTS
    assert fuzz(target, seed=1, count=groups).traced == groups
    part = fuzz(target, seed=1, count=10, first=4 * GROUP_INPUTS - 7, traced_every=4)
    assert part.traced == 3


def _unless_seed(run: Callable[[bytes], object], seeds: list[bytes]) -> Callable[[bytes], object]:
    """Seeds pass in any case: a bug that shows at the first good input is none to search for."""
    return lambda data: None if data in seeds else run(data)


def test_a_bug_behind_a_checksum_is_found_only_with_its_repair() -> None:
    good = _repair_crc32(b"\0\0\0\0\x00\x03abcdef")
    target = partial(Target, "behind", (), _behind_a_checksum, lambda: [good])
    fuzz(target(), seed=1, count=COUNT)
    with pytest.raises(BrokenPromiseError, match="IndexError"):
        fuzz(target(repair=_repair_crc32), seed=1, count=COUNT)


def test_a_repaired_batch_reaches_the_records() -> None:
    """Of mutated and repaired logs, many pass their CRC and are changed all the same."""
    seeds = captured("*/*.log")
    passed = 0
    for seed in seeds:
        changed = bytearray(seed)
        changed[70] ^= 0xFF
        repaired = repairs.batches(bytes(changed))
        passed += repaired != bytes(changed) and len(repaired) == len(changed)
    assert passed


def test_an_input_is_named_by_seed_and_number() -> None:
    def refuse_number_three(data: bytes) -> None:
        seen.append(data)

    seen: list[bytes] = []
    target = Target("named", (), refuse_number_three, lambda: [b"seed"], errors=())
    count = 2 * GROUP_INPUTS
    fuzz(target, seed=9, count=count)
    whole, seen[:] = seen[1:], []
    assert len(whole) == count
    for number in (0, 7, GROUP_INPUTS - 1, GROUP_INPUTS, GROUP_INPUTS + 3):
        fuzz(target, seed=9, count=2, first=number, traced_every=2)
        assert seen[1:] == whole[number : number + 2]
        seen.clear()


def test_a_target_that_takes_no_seed_is_an_error() -> None:
    def refuse(_data: bytes) -> None:
        raise _corrupt("always")

    with pytest.raises(AssertionError, match="takes none of its seeds"):
        fuzz(Target("refuses", (), refuse, lambda: [b"x"]), seed=1, count=1)

"""Decodes record batches to Arrow, by the compiled kernel and by the pure reader, by turns.

`python -m bench.pipeline_decode` writes one table. The logs lie in memory and are copied into a
buffer of 1 MiB that is used again, as from a file. MB are 10**6 bytes of records, uncompressed; all
columns but `headers` are built, every CRC is checked.
"""

from __future__ import annotations

import argparse
import random
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.table import Measure, write_table
from kafka_formats.batch_scan import scan
from kafka_formats.compression import Codec
from kafka_formats.record_batch import HEADER_BYTES, Record, encode_batch
from pipeline.decode.batch_decoder import BatchDecoder
from pipeline.decode.kernel_rows import KernelRows
from pipeline.decode.pure_rows import PureRows
from pipeline.decode.quick_decompress import QuickDecompressor
from pipeline.decode.rows import RowsKind, Slice
from pipeline.decode.schema import COLUMNS

MIB = 1 << 20
PIECE_BYTES = MIB
LOG_BYTES = 64 * MIB
DISTINCT_BYTES = 4 * MIB
BYTES_MAX = 128 * MIB
FULL = tuple(name for name in COLUMNS if name != "headers")
NARROW = ("offset", "timestamp")
KERNEL_MBS_MIN = 3_000
_BASE_OFFSET = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class Shape:
    """Values, batches and codec of a log."""

    value_bytes: int
    batch_records: int
    codec: Codec
    headers: bool = False

    def __str__(self) -> str:
        size = (
            f"{self.value_bytes} B" if self.value_bytes < 1024 else f"{self.value_bytes >> 10} KB"
        )
        more = ", headers" if self.headers else ""
        return f"{self.codec.name.lower()}, values of {size}, {self.batch_records} a batch{more}"


AIMED = Shape(1024, 100, Codec.NONE)


@dataclass(frozen=True, slots=True)
class Log:
    """A log in memory, what its records have in bytes and number, and the compressed of each."""

    data: bytes
    plain_bytes: int
    records: int
    bodies: list[bytes]


def value(size: int, chance: random.Random) -> bytes:
    """A value like JSON, half of it random: zstd makes a bit less than half of it."""
    out = bytearray(b'{"id":"%032x"' % chance.getrandbits(128))
    while len(out) < size:
        out += b',"%s":%d' % (chance.choice(WORDS), chance.getrandbits(24))
    return bytes(out[:size])


WORDS = [b"amount", b"customer", b"currency", b"discount", b"quantity", b"region", b"status"]


def write_log(shape: Shape) -> Log:
    """A few MiB of batches, again and again: the base offset stands outside the CRC."""
    chance = random.Random(7)
    batches: list[bytes] = []
    plain = 0
    headers = (("trace", b"0123456789abcdef"), ("source", b"bench")) if shape.headers else ()
    while plain < DISTINCT_BYTES:
        records = [
            Record(at, 1_700_000_000_000 + at, b"key-%010d" % at, value(shape.value_bytes, chance),
                   headers if at % 5 == 0 else ())
            for at in range(shape.batch_records)
        ]  # fmt: skip
        batches.append(encode_batch(records, base_offset=0, codec=shape.codec))
        plain += len(encode_batch(records, base_offset=0)) - HEADER_BYTES
    rounds = max(1, LOG_BYTES // plain)
    log = bytearray()
    offset = 0
    for batch in batches * rounds:
        log += _BASE_OFFSET.pack(offset) + batch[_BASE_OFFSET.size :]
        offset += shape.batch_records
    bodies = [bytes(each.data[HEADER_BYTES:]) for each in scan(bytes(log), source="log")]
    return Log(bytes(log), plain * rounds, offset, bodies)


def decode(log: Log, rows: RowsKind, columns: tuple[str, ...]) -> None:
    """All of it, each Arrow batch dropped at once."""
    decoder = BatchDecoder(columns, Slice("orders", 0, "log"), rows=rows)
    buffer, data = memoryview(bytearray(PIECE_BYTES)), memoryview(log.data)
    found = 0
    for at in range(0, len(data), PIECE_BYTES):
        piece = data[at : at + PIECE_BYTES]
        buffer[: len(piece)] = piece
        found += sum(batch.num_rows for batch in decoder.feed(buffer[: len(piece)]))
    found += sum(batch.num_rows for batch in decoder.finish())
    if found != log.records:
        raise RuntimeError(f"{found} records of {log.records} were decoded")


def decompress(log: Log, codec: Codec) -> None:
    """The decompressor alone."""
    decompressor = QuickDecompressor()
    for body in log.bodies:
        decompressor.decompress(codec, body, bytes_max=BYTES_MAX)


def seconds(work: Callable[[], None]) -> float:
    """Seconds that `work` takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def measures_of(shape: Shape, columns: tuple[str, ...], rounds: int) -> list[Measure]:
    """Both readers and the decompressor, by turns."""
    log = write_log(shape)
    megabytes, millions = log.plain_bytes / 1e6, log.records / 1e6
    kernel_s, pure_s, codec_s = [], [], []
    for _ in range(rounds):
        kernel_s.append(seconds(lambda: decode(log, KernelRows, columns)))
        pure_s.append(seconds(lambda: decode(log, PureRows, columns)))
        if shape.codec is not Codec.NONE:
            codec_s.append(seconds(lambda: decompress(log, shape.codec)))
    name = f"{shape}{', offset and timestamp only' if columns == NARROW else ''}"
    rates = [megabytes / each for each in kernel_s]
    aimed = shape == AIMED and columns == FULL
    found = [
        Measure(
            f"{name}: kernel", "MB/s", rates,
            target=f">= {KERNEL_MBS_MIN}" if aimed else "",
            met=sorted(rates)[rounds // 2] >= KERNEL_MBS_MIN if aimed else None,
        ),
        Measure(f"{name}: kernel", "million records/s", [millions / each for each in kernel_s]),
        Measure(f"{name}: pure reader", "MB/s", [megabytes / each for each in pure_s]),
    ]  # fmt: skip
    if codec_s:
        shares = [alone / whole for alone, whole in zip(codec_s, kernel_s, strict=True)]
        found.append(Measure(f"{name}: kernel", "x the decompressor alone", shares))
    return found


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    rounds = options.parse_args().rounds
    kilobyte = [Shape(1024, 100, codec) for codec in Codec]
    cases = [(shape, FULL) for shape in kilobyte]
    cases += [
        (Shape(1024, 100, Codec.NONE, headers=True), COLUMNS),
        (Shape(1024, 1, Codec.NONE), FULL),
        (Shape(1024, 1_000, Codec.NONE), FULL),
        (Shape(1024, 100, Codec.NONE), NARROW),
        (Shape(100, 1_000, Codec.NONE), FULL),
        (Shape(100, 1_000, Codec.ZSTD), FULL),
        (Shape(10 << 10, 50, Codec.NONE), FULL),
        (Shape(10 << 10, 50, Codec.ZSTD), FULL),
    ]
    write_table(
        "Record batches to Arrow",
        [measure for shape, columns in cases for measure in measures_of(shape, columns, rounds)],
        packages=("pyarrow", "cython", "zstandard", "lz4", "cramjam", "crc32c"),
        notes=("one core, logs of 64 MiB of records in memory",),
    )


if __name__ == "__main__":
    main()

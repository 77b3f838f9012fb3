"""Small inputs that stand for gigabytes, read in a process of its own that tells what it took:

    python -m tests.fuzz.bombs NAME

prints the resident memory in bytes that reading added, and how it ended.
"""

from __future__ import annotations

import resource
import struct
import sys
from collections.abc import Callable

from kafka_formats import varints
from kafka_formats.compression import Codec, CompressionError, compress, decompress
from kafka_formats.errors import CorruptData
from kafka_formats.record_batch import HEADER_BYTES, encode_batch, iter_records
from tests.fuzz import repairs

_MIB = 1 << 20
LIMIT_BYTES = 64 * _MIB
"""What readers of records allow a batch to decompress to."""

_XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def _repeated(codec: Codec, times: int) -> bytes:
    """Parts of 16 MiB of zeros, one behind the other."""
    return compress(codec, bytes(16 * _MIB)) * times


def _snappy_announcing(size: int) -> bytes:
    """A raw block: its length as a varint, then a literal of one byte and copies of it."""
    announced = bytearray()
    while size >= 0x80:
        announced.append(size & 0x7F | 0x80)
        size >>= 7
    announced.append(size)
    return bytes(announced) + b"\x00a" + b"\xfe\x01\x00" * 1_000


def _zstd_window(log: int) -> bytes:
    """A frame that asks for a window of 2**log bytes: one block of one byte, repeated 128 KiB."""
    descriptor = (log - 10) << 3
    block = (128 << 10) << 3 | 1 << 1 | 1  # run length, last block
    return b"\x28\xb5\x2f\xfd\x00" + bytes((descriptor,)) + block.to_bytes(3, "little") + b"a"


def _zstd_content_size(size: int) -> bytes:
    """A single segment frame that announces `size` bytes and holds one."""
    head = b"\x28\xb5\x2f\xfd" + bytes((0xE0,)) + size.to_bytes(8, "little")
    return head + (1 << 3 | 1).to_bytes(3, "little") + b"a"


def _lz4_announcing(size: int) -> bytes:
    """A frame whose header announces `size` bytes (its checksum byte is not right: no matter)."""
    return b"\x04\x22\x4d\x18" + b"\x68\x70" + size.to_bytes(8, "little") + b"\x73" + bytes(8)


def _batch(codec: Codec, records: bytes, count: int) -> bytes:
    frame = bytearray(encode_batch([], base_offset=0, last_offset=2**31 - 1, codec=codec))
    struct.pack_into(">i", frame, HEADER_BYTES - 4, count)
    return repairs.whole_batch(bytes(frame[:HEADER_BYTES]) + compress(codec, records))


def _many_headers() -> bytes:
    """One record with a header in every two bytes."""
    count = LIMIT_BYTES // 2 - 20
    body = bytearray(b"\x00\x00\x00\x01\x01")
    varints.write(body, count)
    body += b"\x00\x01" * count
    record = bytearray()
    varints.write(record, len(body))
    return _batch(Codec.GZIP, bytes(record) + bytes(body), 1)


def _many_records() -> bytes:
    return _batch(Codec.ZSTD, b"\x00" * LIMIT_BYTES, 2**31 - 1)


CODEC_BOMBS: dict[str, tuple[Codec, Callable[[], bytes]]] = {
    "gzip": (Codec.GZIP, lambda: compress(Codec.GZIP, bytes(512 * _MIB))),
    "gzip in members": (Codec.GZIP, lambda: _repeated(Codec.GZIP, 100)),
    "gzip in empty members": (Codec.GZIP, lambda: compress(Codec.GZIP, b"") * 100_000),
    "snappy that announces 4 GiB": (Codec.SNAPPY, lambda: _snappy_announcing(2**32 - 1)),
    "snappy that announces 63 MiB": (Codec.SNAPPY, lambda: _snappy_announcing(63 * _MIB)),
    "snappy stream": (Codec.SNAPPY, lambda: compress(Codec.SNAPPY, bytes(256 * _MIB))),
    "snappy stream that announces": (
        Codec.SNAPPY,
        lambda: _XERIAL + b"\0\0\x0b\xc5" + _snappy_announcing(2**32 - 1)[:3_013] + bytes(99),
    ),
    "snappy streams of nothing": (Codec.SNAPPY, lambda: _XERIAL * 500_000),
    "lz4": (Codec.LZ4, lambda: compress(Codec.LZ4, bytes(512 * _MIB))),
    "lz4 in frames": (Codec.LZ4, lambda: _repeated(Codec.LZ4, 100)),
    "lz4 that announces": (Codec.LZ4, lambda: _lz4_announcing(2**62)),
    "zstd": (Codec.ZSTD, lambda: compress(Codec.ZSTD, bytes(512 * _MIB))),
    "zstd in frames": (Codec.ZSTD, lambda: _repeated(Codec.ZSTD, 100)),
    "zstd in empty frames": (Codec.ZSTD, lambda: compress(Codec.ZSTD, b"") * 100_000),
    "zstd with a large window": (Codec.ZSTD, lambda: _zstd_window(27) * 2_000),
    "zstd with a huge window": (Codec.ZSTD, lambda: _zstd_window(31) * 2_000),
    "zstd that announces": (Codec.ZSTD, lambda: _zstd_content_size(2**62)),
}
RECORD_BOMBS: dict[str, Callable[[], bytes]] = {
    "a record of headers": _many_headers,
    "a batch of nothing but records": _many_records,
}


def _read(name: str, data: bytes) -> str:
    try:
        if name in CODEC_BOMBS:
            size = len(decompress(CODEC_BOMBS[name][0], data, bytes_max=LIMIT_BYTES))
            return f"gave {size} bytes"
        for _ in iter_records(data, source="bomb", position=0):
            pass
    except (CompressionError, CorruptData) as error:
        return f"refused: {error}"
    return "read"


def main(name: str) -> None:
    """Make the bomb in a child, so that making it does not count, and read it here."""
    data = sys.stdin.buffer.read()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ended = _read(name, data)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{(after - before) * 1024} {ended}")


if __name__ == "__main__":
    main(sys.argv[1])

"""The pipeline's decoder: hostile logs, through the compiled kernel; and the transforms of Aiven's
plug-in, undone.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache, partial

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from kafka_formats.compression import Codec, CompressionError, compress
from kafka_formats.errors import CorruptData, InvalidRequest, Refused
from kafka_formats.record_batch import HEADER_BYTES, encode_batch
from pipeline.decode.batch_decoder import BatchDecoder, DecodeLimits
from pipeline.decode.kernel_rows import KernelRows
from pipeline.decode.quick_decompress import QuickDecompressor
from pipeline.decode.rows import Slice
from pipeline.decode.schema import COLUMNS
from rlm.data_plane.aiven_keys import AivenKeys
from rlm.data_plane.aiven_reader import checked_index
from rlm.data_plane.chunk_transforms import ChunkTransforms
from rlm.data_plane.read_request import AivenSegment
from rlm.format.aiven_metadata import AivenMetadata
from rlm.format.manifest import IndexType, parse_manifest
from rlm.format.manifest_transforms import Chunk, ChunkIndex, Encryption, Transforms
from tests.fuzz import repairs
from tests.fuzz.engine import KIB, Target
from tests.fuzz.format_targets import captured, captured_batches, codec_seeds, inner_seeds
from tests.pipeline.read.aiven_bucket import SMALL
from tests.rlm.aiven_writer import custom_metadata
from tests.rlmm.records.test_records import SEGMENT_ID

SOURCE = "the fuzzed bytes"
RECORDS_BYTES_MAX = 64 * KIB
OUTPUT_BYTES = 4 * KIB
# What zstd gives of one piece at once, and the buffers of the columns, from which nothing is taken.
CONSTANT_BYTES = 24 << 20


def _decode(data: bytes) -> None:
    """In pieces, into small batches; each row is valid, whatever it came from."""
    decoder = BatchDecoder(
        COLUMNS,
        Slice("t", 0, SOURCE),
        limits=DecodeLimits(OUTPUT_BYTES, RECORDS_BYTES_MAX),
        rows=KernelRows,
    )
    step = len(data) % 700 + 1
    for at in range(0, len(data), step):
        for batch in decoder.feed(memoryview(data)[at : at + step]):
            batch.validate(full=True)
    for batch in decoder.finish():
        batch.validate(full=True)


def _decode_inner(data: bytes) -> None:
    """The records of a batch whose header is right, whatever they are: count, and their bytes."""
    frame = encode_batch([], base_offset=0, last_offset=2**31 - 1)
    count = data[:1].rjust(4, b"\0")
    _decode(repairs.whole_batch(frame[: HEADER_BYTES - 4] + count + data[2:]))


CHUNK_BYTES = 4 * KIB
_KEY, _IV, _AAD = bytes(range(32)), bytes(12), b"aad"


def _aiven_chunk(data: bytes) -> None:
    """What stands inside of a chunk whose authentication is right: no mutation gets that far."""
    stored = _IV + AESGCM(_KEY).encrypt(_IV, data, _AAD)
    index = ChunkIndex(CHUNK_BYTES, CHUNK_BYTES, len(stored), len(stored))
    transforms = Transforms(index, True, Encryption("key", b"", _AAD))
    undoing = ChunkTransforms(transforms, _KEY, source=SOURCE)
    chunk = Chunk(0, len(stored), 0, CHUNK_BYTES)
    assert len(undoing.undone(chunk, stored)) == CHUNK_BYTES


def _aiven_bare_chunk(data: bytes) -> None:
    """Chunks and indexes as they are stored, whatever they are."""
    transforms = Transforms(
        ChunkIndex(CHUNK_BYTES, CHUNK_BYTES, len(data), len(data)),
        False,
        Encryption("key", b"", _AAD),
    )
    undoing = ChunkTransforms(transforms, _KEY, source=SOURCE)
    undoing.index(data, 0, source=SOURCE)
    undoing.undone(Chunk(0, len(data), 0, CHUNK_BYTES), data)


@cache
def _aiven_keys() -> AivenKeys:
    return AivenKeys.load([str(SMALL / "keys")], setting=SOURCE)


def _wrapped_keys() -> list[bytes]:
    (path,) = (SMALL / "enc").glob("*/0/*.rsm-manifest")
    transforms = parse_manifest(path.read_bytes(), source=path.name).transforms
    assert transforms is not None
    assert transforms.encryption is not None
    return [transforms.encryption.wrapped_data_key]


def _aiven_wrapped_key(data: bytes) -> None:
    key = _aiven_keys().data_key(Encryption("key1", data, b""), source=SOURCE)
    AESGCM(key)


def _aiven_indexes(data: bytes) -> None:
    """As each of the indexes: of its form, or refused."""
    segment = AivenSegment(SEGMENT_ID, 0, 100, len(data) * 10, False, ())
    for index in IndexType:
        with suppress(CorruptData):
            checked_index(data, index, segment, source=SOURCE)


def _aiven_metadata(data: bytes) -> None:
    found = AivenMetadata.decode(data)
    assert found.remote_bytes is None or found.remote_bytes >= 0


def _index_seeds() -> list[bytes]:
    return [
        data
        for suffix in ("index", "timeindex", "txnindex", "snapshot")
        for data in captured(f"*/*.{suffix}")
    ][:40]


def _aiven_targets() -> list[Target]:
    sealed = _IV + AESGCM(_KEY).encrypt(_IV, bytes(CHUNK_BYTES), _AAD)
    return [
        Target(
            "aiven: chunks",
            (),
            _aiven_chunk,
            lambda: [compress(Codec.ZSTD, bytes(range(256)) * 16)],
            constant_bytes=CONSTANT_BYTES,
            share=0.5,
        ),
        Target(
            "aiven: custom metadata",
            ("rlm.format.aiven_metadata.AivenMetadata.decode",),
            _aiven_metadata,
            lambda: [b"\x00", custom_metadata(size=60, prefix="tier/", key="orders-x/0/0001-y")],
        ),
        Target("aiven: indexes", (), _aiven_indexes, _index_seeds, (), factor=120, share=0.5),
        Target("aiven: stored chunks", (), _aiven_bare_chunk, lambda: [sealed], share=0.5),
        Target(
            "aiven: wrapped keys",
            (),
            _aiven_wrapped_key,
            _wrapped_keys,
            (Refused,),
            constant_bytes=256 * KIB,
            share=0.05,  # a private key's power is slow
        ),
    ]


def _codec_target(codec: Codec) -> Target:
    decompress = QuickDecompressor().decompress
    return Target(
        f"quick_decompress.{codec.name.lower()}",
        (),
        partial(decompress, codec, bytes_max=RECORDS_BYTES_MAX),
        partial(codec_seeds, codec),
        (CompressionError,),
        constant_bytes=CONSTANT_BYTES,
    )


def pipeline_targets() -> list[Target]:
    """All rows of this module."""
    return [
        Target(
            "kernel: logs",
            (),
            _decode,
            lambda: [*captured("*/*.log"), *captured_batches()],
            (CorruptData, InvalidRequest),
            constant_bytes=CONSTANT_BYTES,
            repair=repairs.batches,
            share=0.5,
        ),
        Target(
            "kernel: records",
            (),
            _decode_inner,
            inner_seeds,
            (CorruptData, InvalidRequest),
            constant_bytes=CONSTANT_BYTES,
            share=0.5,
        ),
        *_aiven_targets(),
        *(_codec_target(codec) for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD)),
    ]

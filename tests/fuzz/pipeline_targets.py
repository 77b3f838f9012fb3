"""The pipeline's decoder: hostile logs, through the compiled kernel."""

from __future__ import annotations

from functools import partial

from kafka_formats.compression import Codec, CompressionError
from kafka_formats.record_batch import HEADER_BYTES, encode_batch
from pipeline.decode.batch_decoder import BatchDecoder
from pipeline.decode.kernel_rows import KernelRows
from pipeline.decode.quick_decompress import QuickDecompressor
from pipeline.decode.schema import COLUMNS
from tests.fuzz import repairs
from tests.fuzz.engine import KIB, Target
from tests.fuzz.format_targets import captured, captured_batches, codec_seeds, inner_seeds

SOURCE = "the fuzzed bytes"
RECORDS_BYTES_MAX = 64 * KIB
OUTPUT_BYTES = 4 * KIB
# What zstd gives of one piece at once, and the buffers of the columns, from which nothing is taken.
CONSTANT_BYTES = 24 << 20


def _decode(data: bytes) -> None:
    """In pieces, into small batches; each row is valid, whatever it came from."""
    decoder = BatchDecoder(
        COLUMNS,
        topic="t",
        partition=0,
        source=SOURCE,
        output_bytes=OUTPUT_BYTES,
        records_bytes_max=RECORDS_BYTES_MAX,
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
            constant_bytes=CONSTANT_BYTES,
            repair=repairs.batches,
            share=0.5,
        ),
        Target(
            "kernel: records",
            (),
            _decode_inner,
            inner_seeds,
            constant_bytes=CONSTANT_BYTES,
            share=0.5,
        ),
        *(_codec_target(codec) for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD)),
    ]

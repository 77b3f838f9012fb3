"""What Aiven's plug-in did to a segment: read from its own manifests, and refused where it lies."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_formats.compression import Codec, compress
from kafka_formats.errors import CorruptData
from rlm.format.json_fields import Fields
from rlm.format.manifest_transforms import Transforms, parse_transforms

AIVEN = Path(__file__).resolve().parents[2] / "data" / "aiven-manifests"
CHUNK = 1_000


def aiven(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((AIVEN / f"{name}.json").read_bytes())
    return document


def parse(document: object) -> Transforms | None:
    return parse_transforms(Fields(document, "m", ""))


def parsed(document: object) -> Transforms:
    transforms = parse(document)
    assert transforms is not None
    return transforms


def compressed(sizes: list[int], listed: bytes, *, original: int | None = None) -> dict[str, Any]:
    return {
        "compression": True,
        "chunkIndex": {
            "type": "variable",
            "originalChunkSize": CHUNK,
            "originalFileSize": len(sizes) * CHUNK if original is None else original,
            "transformedChunks": base64.b64encode(compress(Codec.ZSTD, listed)).decode(),
        },
    }


def encrypted(chunk: int, last: int, original: int) -> dict[str, Any]:
    return {
        "compression": False,
        "encryption": {"dataKey": "k:AAAA", "aad": "AAAA"},
        "chunkIndex": {
            "type": "fixed",
            "originalChunkSize": CHUNK,
            "originalFileSize": original,
            "transformedChunkSize": chunk,
            "finalTransformedChunkSize": last,
        },
    }


def listed(sizes: list[int], width: int) -> bytes:
    """The plug-in's list of sizes."""
    if len(sizes) <= 1:
        return struct.pack(f">i{len(sizes)}i", len(sizes), *sizes)
    lowest = min(sizes[:-1])
    differences = b"".join((size - lowest).to_bytes(width, "big") for size in sizes[:-1])
    return struct.pack(">iiB", len(sizes), lowest, width) + differences + sizes[-1].to_bytes(4)


def test_a_segment_as_it_is_has_no_transforms() -> None:
    assert parse(aiven("plain")) is None
    assert parse(aiven("transactions")) is None


def test_the_chunks_of_a_compressed_segment_fill_object_and_segment_without_a_gap() -> None:
    transforms = parsed(aiven("compressed"))
    assert transforms.compressed
    assert transforms.encryption is None
    position = original = 0
    for chunk in transforms.chunks.chunks():
        assert (chunk.position, chunk.original_position) == (position, original)
        position += chunk.stored_bytes
        original += chunk.original_bytes
    assert original == aiven("compressed")["chunkIndex"]["originalFileSize"]
    assert position == transforms.chunks.stored_bytes


def test_the_wrapped_key_of_an_encrypted_segment_is_read() -> None:
    encryption = parsed(aiven("encrypted")).encryption
    assert encryption is not None
    assert encryption.key_id == "key1"
    assert len(encryption.wrapped_data_key) == 512
    assert len(encryption.aad) == 32


def test_chunks_that_are_only_encrypted_are_28_bytes_longer_each() -> None:
    chunks = parsed(encrypted(CHUNK + 28, 528, 2 * CHUNK + 500)).chunks
    assert [each.stored_bytes for each in chunks.chunks()] == [CHUNK + 28, CHUNK + 28, 528]
    assert chunks.stored_bytes == 2 * CHUNK + 500 + 3 * 28
    for wrong in (encrypted(CHUNK, 500, 1_500), encrypted(CHUNK + 28, 501, 1_500)):
        with pytest.raises(CorruptData, match="chunkIndex"):
            parse(wrong)


@given(st.lists(st.integers(1, CHUNK), max_size=20), st.integers(2, 4))
def test_every_list_of_sizes_is_read_back(sizes: list[int], width: int) -> None:
    chunks = parsed(compressed(sizes, listed(sizes, width))).chunks
    assert [each.stored_bytes for each in chunks.chunks()] == sizes


def test_equal_sizes_need_no_bytes() -> None:
    chunks = parsed(compressed([7, 7, 9], listed([7, 7, 9], 0))).chunks
    assert chunks.stored_sizes == (7, 7, 9)


GOOD = listed([10, 20, 30], 1)


@pytest.mark.parametrize(
    ("document", "names"),
    [
        (compressed([10, 20], GOOD), "does not have 2 sizes"),
        (compressed([1] * 3, GOOD[:-1]), "14 bytes do not hold"),
        (compressed([1] * 3, struct.pack(">iiB", 3, 0, 9)), "do not hold"),
        (compressed([1] * 3, struct.pack(">i", 3)), "ends within its header"),
        (compressed([1] * 3, bytes(10_000)), "transformedChunks is not a compressed list"),
        (compressed([1] * 3, listed([10, 20, 30_000], 2)), "a stored chunk of 30000 bytes"),
        (compressed([1] * 3, listed([10, 0, 30], 1)), "a stored chunk of 0 bytes"),
        (compressed([], b"", original=CHUNK * 2_000_000), "2000000 chunks"),
        ({"compression": True, "chunkIndex": {}}, "originalFileSize is missing"),
        ({**aiven("encrypted"), "encryption": {"dataKey": "x", "aad": ""}}, "dataKey"),
        ({**aiven("encrypted"), "encryption": {"dataKey": "x:?", "aad": ""}}, "dataKey"),
        ({**aiven("encrypted"), "encryption": {"dataKey": "x:", "aad": "?"}}, "aad"),
    ],
)
def test_what_does_not_fit_is_refused_and_named(document: object, names: str) -> None:
    with pytest.raises(CorruptData, match=names):
        parse(document)

"""Objects as Aiven's plug-in writes them, by a writer of the tests: from the description of its
layout, not by the code that reads it.
"""

from __future__ import annotations

import base64
import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha3_512

import zstandard
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from rlm.format.manifest import IndexType
from rlmm.segment import RemoteLogSegmentMetadata
from tests.real.toolbox import REPOSITORY

KEYS = REPOSITORY / "tests" / "data" / "aiven-bucket" / "keys"
KEY_ID = "key1"
INDEX_ORDER = ("offset", "timestamp", "producerSnapshot", "leaderEpoch", "transaction")


@dataclass(frozen=True)
class AivenWriter:
    """The settings of the plug-in: `chunk.size`, `compression.enabled`, `encryption.enabled`."""

    chunk_bytes: int
    compressed: bool = False
    encrypted: bool = False

    def objects(
        self, row: RemoteLogSegmentMetadata, log: bytes, indexes: Mapping[IndexType, bytes]
    ) -> dict[str, bytes]:
        """By suffix: the three objects of a segment."""
        key, aad = os.urandom(32), os.urandom(32)
        chunks = [
            self._transformed(log[at : at + self.chunk_bytes], key, aad)
            for at in range(0, len(log), self.chunk_bytes)
        ]
        stored = b""
        ranges: dict[str, dict[str, int] | None] = {}
        for name in INDEX_ORDER:
            data = indexes.get(IndexType(name))
            if data is None:
                ranges[name] = None
                continue
            if self.encrypted and data:
                data = _sealed(data, key, aad)
            ranges[name] = {"position": len(stored), "size": len(data)}
            stored += data
        document = {
            "version": "1",
            "chunkIndex": self._chunk_index(len(log), [len(chunk) for chunk in chunks]),
            "segmentIndexes": ranges,
            "compression": self.compressed,
            "remoteLogSegmentMetadata": _segment(row),
        }
        if self.encrypted:
            document["encryption"] = {
                "dataKey": f"{KEY_ID}:{base64.b64encode(_wrapped(key)).decode()}",
                "aad": base64.b64encode(aad).decode(),
            }
        manifest = json.dumps(document).encode()
        return {"log": b"".join(chunks), "indexes": stored, "rsm-manifest": manifest}

    def _transformed(self, chunk: bytes, key: bytes, aad: bytes) -> bytes:
        if self.compressed:
            chunk = zstandard.ZstdCompressor().compress(chunk)
        return _sealed(chunk, key, aad) if self.encrypted else chunk

    def _chunk_index(self, log_bytes: int, sizes: list[int]) -> dict[str, object]:
        index: dict[str, object] = {
            "type": "variable" if self.compressed else "fixed",
            "originalChunkSize": self.chunk_bytes,
            "originalFileSize": log_bytes,
        }
        if self.compressed:
            listed = zstandard.ZstdCompressor().compress(_listed(sizes))
            index["transformedChunks"] = base64.b64encode(listed).decode()
        else:
            index["transformedChunkSize"] = sizes[0] if sizes else 0
            index["finalTransformedChunkSize"] = sizes[-1] if sizes else 0
        return index


def _listed(sizes: list[int]) -> bytes:
    if len(sizes) < 2:
        return struct.pack(f">i{len(sizes)}i", len(sizes), *sizes)
    lowest = min(sizes[:-1])
    rest = b"".join((size - lowest).to_bytes(4, "big") for size in sizes[:-1])
    return struct.pack(">iib", len(sizes), lowest, 4) + rest + struct.pack(">i", sizes[-1])


def _sealed(data: bytes, key: bytes, aad: bytes) -> bytes:
    iv = os.urandom(12)
    return iv + AESGCM(key).encrypt(iv, data, aad)


def _wrapped(message: bytes) -> bytes:
    """RSA-OAEP with SHA3-512 for digest and mask (RFC 8017, 7.1.1)."""
    public = load_pem_public_key((KEYS / "public.pem").read_bytes())
    assert isinstance(public, RSAPublicKey)
    numbers, size = public.public_numbers(), public.key_size // 8
    block = sha3_512().digest() + bytes(size - len(message) - 2 * 64 - 2) + b"\x01" + message
    seed = os.urandom(64)
    masked = _xor(block, _mask(seed, len(block)))
    encoded = b"\x00" + _xor(seed, _mask(masked, 64)) + masked
    return pow(int.from_bytes(encoded, "big"), numbers.e, numbers.n).to_bytes(size, "big")


def _mask(seed: bytes, size: int) -> bytes:
    made = b""
    while len(made) < size:
        made += sha3_512(seed + struct.pack(">I", len(made) // 64)).digest()
    return made[:size]


def _xor(first: bytes, second: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(first, second, strict=True))


def _segment(row: RemoteLogSegmentMetadata) -> dict[str, object]:
    partition = row.segment_id.partition
    return {
        "remoteLogSegmentId": {
            "topicIdPartition": {
                "topicId": str(partition.topic_id),
                "topicPartition": {"topic": partition.topic, "partition": partition.partition},
            },
            "id": str(row.segment_id.id),
        },
        "startOffset": row.start_offset,
        "endOffset": row.end_offset,
        "maxTimestampMs": row.max_timestamp_ms,
        "brokerId": row.broker_id,
        "eventTimestampMs": row.event_timestamp_ms,
        "segmentLeaderEpochs": {str(epoch): start for epoch, start in row.leader_epochs},
    }


def custom_metadata(
    *, size: int | None = None, prefix: str | None = None, key: str | None = None
) -> bytes:
    """The fields that `custom.metadata.fields.include` names; all numbers here are below 128."""
    fields = []
    if size is not None:
        fields.append((0, bytes([size << 1])))
    for tag, text in ((1, prefix), (2, key)):
        if text is not None:
            fields.append((tag, bytes([len(text) + 1]) + text.encode()))
    return bytes([len(fields)]) + b"".join(bytes([tag, len(data)]) + data for tag, data in fields)

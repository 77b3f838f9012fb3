"""Turns chunks of Aiven's plug-in back into the segment's bytes: decrypts, then decompresses."""

from __future__ import annotations

from collections.abc import Iterator

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from kafka_formats.compression import Codec, CompressionError, decompress
from kafka_formats.crc32c import Buffer
from kafka_formats.errors import CorruptData
from pipeline.read.object_stream import Range
from rlm.format.manifest_transforms import Chunk, Encryption, Transforms

_IV_BYTES = 12


class ChunkTransforms:
    """The transforms of one segment. `data_key` is its encryption's; None if not encrypted."""

    def __init__(self, transforms: Transforms, data_key: bytes | None, *, source: str) -> None:
        self._transforms = transforms
        self._source = source
        encryption = transforms.encryption
        self._cipher = None
        if encryption is not None:
            assert data_key is not None, "an encrypted segment comes with its key"
            self._cipher = _Cipher(encryption, data_key)

    def groups(self, start: int, end: int, group_bytes: int) -> Iterator[list[Chunk]]:
        """The chunks with bytes [start, end) of the segment, in groups of at most `group_bytes`
        or one chunk.
        """
        group: list[Chunk] = []
        size = 0
        for chunk in self._transforms.chunks.chunks():
            if chunk.original_position + chunk.original_bytes <= start:
                continue
            if chunk.original_position >= end:
                break
            if group and size + chunk.stored_bytes > group_bytes:
                yield group
                group, size = [], 0
            group.append(chunk)
            size += chunk.stored_bytes
        if group:
            yield group

    def undone(self, group: list[Chunk], stored: memoryview) -> Iterator[bytes | memoryview]:
        """The segment's bytes of each chunk. `stored` are the object's bytes of `group`."""
        at = 0
        for chunk in group:
            data = stored[at : at + chunk.stored_bytes]
            at += chunk.stored_bytes
            if len(data) < chunk.stored_bytes:
                raise self._corrupt("the object ends inside this chunk", chunk.position)
            yield self._undone(chunk, data)

    def index(self, stored: Buffer, position: int) -> bytes:
        """The bytes of an index, which is one encrypted chunk, never compressed."""
        if self._cipher is None or not stored:
            return bytes(stored)
        return self._decrypted(self._cipher, stored, position)

    def _undone(self, chunk: Chunk, stored: memoryview) -> bytes | memoryview:
        data: bytes | memoryview = stored
        if self._cipher is not None:
            data = self._decrypted(self._cipher, stored, chunk.position)
        if self._transforms.compressed:
            try:
                data = decompress(Codec.ZSTD, data, bytes_max=chunk.original_bytes)
            except CompressionError as error:
                raise self._corrupt(
                    f"the chunk can't be decompressed: {error}", chunk.position
                ) from error
        if len(data) != chunk.original_bytes:
            raise self._corrupt(
                f"the chunk has {len(data)} bytes, but the manifest has {chunk.original_bytes}",
                chunk.position,
            )
        return data

    def _decrypted(self, cipher: _Cipher, stored: Buffer, position: int) -> bytes:
        try:
            return cipher.decrypted(stored)
        except (InvalidTag, ValueError):
            raise self._corrupt(
                "the chunk fails its authentication: it is damaged, or of another segment",
                position,
            ) from None

    def _corrupt(self, message: str, position: int) -> CorruptData:
        return CorruptData(message, source=self._source, position=position)


class _Cipher:
    def __init__(self, encryption: Encryption, data_key: bytes) -> None:
        self._gcm = AESGCM(data_key)
        self._aad = encryption.aad

    def decrypted(self, stored: Buffer) -> bytes:
        """The decrypted bytes. InvalidTag, or ValueError for data too short for a tag."""
        view = memoryview(stored)
        return self._gcm.decrypt(bytes(view[:_IV_BYTES]), view[_IV_BYTES:], self._aad)


def stored_range(group: list[Chunk]) -> Range:
    """The bytes of a group's chunks in the object, where they are adjacent."""
    return Range(group[0].position, sum(chunk.stored_bytes for chunk in group))

"""Turns chunks of Aiven's plug-in back into the segment's bytes: decrypts, then decompresses. The
one place for it, for a node's reads and for tasks on Spark.
"""

from __future__ import annotations

from kafka_formats.compression import Codec, CompressionError, decompress
from kafka_formats.crc32c import Buffer
from kafka_formats.errors import CorruptData
from rlm.format.manifest_transforms import Chunk, Encryption, Transforms

_IV_BYTES = 12


class ChunkTransforms:
    """The transforms of one segment. `data_key` is its encryption's; None if not encrypted."""

    def __init__(self, transforms: Transforms, data_key: bytes | None, *, source: str) -> None:
        self.chunks = transforms.chunks
        self._compressed = transforms.compressed
        self._source = source
        encryption = transforms.encryption
        self._cipher = None
        if encryption is not None:
            assert data_key is not None, "an encrypted segment comes with its key"
            self._cipher = _Cipher(encryption, data_key)

    @property
    def authenticates(self) -> bool:
        """True if no damage passes: an encrypted chunk has a tag, a compressed one no checksum."""
        return self._cipher is not None

    def undone(self, chunk: Chunk, stored: Buffer) -> Buffer:
        """The segment's bytes of one chunk, whose object has the bytes `stored` there."""
        if len(stored) < chunk.stored_bytes:
            raise self._corrupt("the object ends inside this chunk", chunk.position)
        data = stored
        if self._cipher is not None:
            data = self._decrypted(self._cipher, stored, self._source, chunk.position)
        if self._compressed:
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

    def index(self, stored: Buffer, position: int, *, source: str) -> bytes:
        """The bytes of an index, which is one encrypted chunk at `position` of the object `source`,
        never compressed.
        """
        if self._cipher is None or not stored:
            return bytes(stored)
        return self._decrypted(self._cipher, stored, source, position)

    def _decrypted(self, cipher: _Cipher, stored: Buffer, source: str, position: int) -> bytes:
        data = cipher.decrypted(stored)
        if data is None:
            raise CorruptData(
                "the chunk fails its authentication: it is damaged, or of another segment",
                source=source,
                position=position,
            )
        return data

    def _corrupt(self, message: str, position: int) -> CorruptData:
        return CorruptData(message, source=self._source, position=position)


class _Cipher:
    def __init__(self, encryption: Encryption, data_key: bytes) -> None:
        # Here, since no node needs it that reads no encrypted segment, and it takes its time.
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._gcm = AESGCM(data_key)
        self._wrong = (InvalidTag, ValueError)  # ValueError: too short for a tag
        self._aad = encryption.aad

    def decrypted(self, stored: Buffer) -> bytes | None:
        """The decrypted bytes; None if they fail their authentication."""
        view = memoryview(stored)
        try:
            return self._gcm.decrypt(bytes(view[:_IV_BYTES]), view[_IV_BYTES:], self._aad)
        except self._wrong:
            return None

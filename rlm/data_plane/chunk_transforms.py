"""Turns chunks of Aiven's plug-in back into the segment's bytes: decrypts, then decompresses. Nodes
and Spark tasks both use this.
"""

from __future__ import annotations

from kafka_formats.compression import Codec, CompressionError, decompress
from kafka_formats.crc32c import Buffer
from kafka_formats.errors import CorruptData
from rlm.format.manifest_transforms import Chunk, Encryption, Transforms

_IV_BYTES = 12


class ChunkTransforms:
    """The transforms of one segment. `data_key` is the key of its chunks; None if they are not
    encrypted.
    """

    def __init__(self, transforms: Transforms, data_key: bytes | None, *, source: str) -> None:
        self.chunks = transforms.chunks
        self._compressed = transforms.compressed
        self._source = source
        encryption = transforms.encryption
        self._cipher = None
        if encryption is not None:
            assert data_key is not None, "the segment is encrypted, so the data key is needed"
            self._cipher = _Cipher(encryption, data_key)

    @property
    def authenticates(self) -> bool:
        """True if all damage is found: encrypted chunks have a tag, others have no checksum."""
        return self._cipher is not None

    def undone(self, chunk: Chunk, stored: Buffer) -> Buffer:
        """The original bytes of one chunk, whose bytes in the object are `stored`."""
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
                "the chunk fails its authentication: it is damaged, or of a different segment",
                source=source,
                position=position,
            )
        return data

    def _corrupt(self, message: str, position: int) -> CorruptData:
        return CorruptData(message, source=self._source, position=position)


class _Cipher:
    def __init__(self, encryption: Encryption, data_key: bytes) -> None:
        # Imported here: only encrypted segments need it, and it is slow to import.
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

"""What Aiven's plug-in did to a segment's bytes before it stored them, as the manifest tells. Pure.

`.log` is cut into chunks of `original_chunk_bytes` (the last may be shorter), and each chunk is
compressed on its own (one zstd frame) and then encrypted on its own (12 bytes of IV in front, 16
bytes of tag behind: AES-GCM). Indexes are encrypted as one chunk each, and never compressed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple


class Chunk(NamedTuple):
    """Bytes [`position`, `position` + `stored_bytes`) of the object are, once the transforms are
    undone, bytes [`original_position`, `original_position` + `original_bytes`) of the segment.
    """

    position: int
    stored_bytes: int
    original_position: int
    original_bytes: int


@dataclass(frozen=True, slots=True)
class ChunkIndex:
    """The chunks of a `.log` object. `stored_sizes` None: all are `stored_chunk_bytes` long, but
    the last, which is `last_stored_bytes`.
    """

    original_chunk_bytes: int
    original_bytes: int
    stored_chunk_bytes: int
    last_stored_bytes: int
    stored_sizes: tuple[int, ...] | None = None

    @property
    def count(self) -> int:
        """How many chunks there are."""
        return -(-self.original_bytes // self.original_chunk_bytes)

    @property
    def stored_bytes(self) -> int:
        """The object's length."""
        if self.stored_sizes is not None:
            return sum(self.stored_sizes)
        return max(0, self.count - 1) * self.stored_chunk_bytes + self.last_stored_bytes

    def chunks(self) -> Iterator[Chunk]:
        """All of them, in order."""
        position = 0
        for number in range(self.count):
            if self.stored_sizes is not None:
                stored = self.stored_sizes[number]
            else:
                is_last = number == self.count - 1
                stored = self.last_stored_bytes if is_last else self.stored_chunk_bytes
            original = number * self.original_chunk_bytes
            yield Chunk(
                position,
                stored,
                original,
                min(self.original_chunk_bytes, self.original_bytes - original),
            )
            position += stored


@dataclass(frozen=True, slots=True)
class Encryption:
    """AES-256-GCM. The data key is wrapped by RSA-OAEP (SHA3-512, MGF1) under the key pair that
    `key_id` names; `aad` is the additional data of every chunk.
    """

    key_id: str
    wrapped_data_key: bytes
    aad: bytes


@dataclass(frozen=True, slots=True)
class Transforms:
    """How to get a segment's bytes back. Undone in the order decrypt, decompress."""

    chunks: ChunkIndex
    compressed: bool = False
    encryption: Encryption | None = None

    @property
    def is_identity(self) -> bool:
        """Whether the object is the segment, byte for byte."""
        return not self.compressed and self.encryption is None

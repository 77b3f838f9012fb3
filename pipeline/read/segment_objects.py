"""Reads the three objects of one segment in a task: verified, and with their transforms undone.

Trust follows one chain, as in a node: the metadata has the CRC32C of the manifest, and the manifest
has those of the chunks of `.log` and `.indexes`. Segments written by other programs may have no
checksums: then only the CRC of each batch is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from functools import cached_property

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import CorruptData, NotFound
from pipeline.catalogue.tiered_segment import TieredSegment
from pipeline.read.manifest_check import differences, manifest_bytes_differ
from pipeline.read.object_stream import Range, ranges
from pipeline.read.open_stores import OpenStores
from rlm.data_plane.chunk_transforms import ChunkTransforms
from rlm.format.manifest import (
    MANIFEST_BYTES_MAX,
    ChunkChecksums,
    IndexType,
    Manifest,
    ProducerSnapshotOrigin,
    parse_manifest,
)
from rlm.format.manifest_transforms import INDEX_BYTES_MAX, Chunk, ChunkIndex
from rsm_backends.blocking_reads import BlockingObject

Damage = Callable[[CorruptData], None]
"""Called for a chunk that fails its checksum, instead of raising."""


class LostSegment(NotFound):
    """The error for a segment whose objects are gone, with its name and offsets."""


class SegmentObjects:
    """Objects are opened when they are needed. `verify` off: only the CRCs of batches are checked.

    CorruptData names object and position; `wrapped` and `naming` add the segment and its offsets.
    """

    def __init__(self, segment: TieredSegment, stores: OpenStores, *, verify: bool = True) -> None:
        self.segment = segment
        self._stores = stores
        self._store = stores.of(segment)
        self.keys = segment.keys(self._store.config.prefix)
        self._verify = verify
        self._log_object_bytes: int | None = None

    @cached_property
    def manifest(self) -> Manifest:
        """The manifest. CorruptData if it differs from the catalogue."""
        name = self.keys.manifest
        data = self.stored_manifest()
        if (wrong := manifest_bytes_differ(self.segment, data)) is not None:
            raise CorruptData(wrong, source=name, position=0)
        manifest = parse_manifest(data, source=name)
        for difference in differences(self.segment, manifest):
            raise CorruptData(difference, source=name, position=0)
        return manifest

    @property
    def log_is_proven(self) -> bool:
        """True if more than the CRCs of its batches proves the bytes of the log."""
        if self._transforms is not None and self._transforms.authenticates:
            return True
        return self._verify and self.manifest.checksums is not None

    def stored_manifest(self) -> bytes:
        """The manifest's bytes as stored, cut at the largest size of a manifest."""
        recorded = self.segment.objects
        most = MANIFEST_BYTES_MAX if recorded is None else recorded.manifest_bytes + 1
        return self._bytes(self.keys.manifest, Range(0, min(most, MANIFEST_BYTES_MAX)))

    def index(self, index: IndexType) -> bytes | None:
        """One index, whole; None if the segment has no index of this type."""
        wanted = self._index_range(index)
        if wanted is None:
            return None
        name, sums = self.keys.indexes, self.manifest.checksums
        if sums is not None and self._verify:
            return self._verified(name, wanted, sums.indexes)
        return self._without_transforms(index, wanted, self._bytes(name, wanted))

    def index_in(self, stored: memoryview, index: IndexType) -> bytes | None:
        """The bytes of an index, as `index` gives them, from the whole object's bytes, whose
        checksums the caller has checked.
        """
        wanted = self._index_range(index)
        if wanted is None:
            return None
        data = bytes(stored[wanted.start : wanted.start + wanted.size])
        return self._without_transforms(index, wanted, data)

    def stored_indexes(self) -> bytes:
        """All bytes of `.indexes` as stored, at most one more than expected."""
        sums = self.manifest.checksums
        ends = [found.position + found.size for found in self.manifest.indexes.values()]
        size = max(ends, default=0) if sums is None else sums.indexes.size_bytes
        return self._bytes(self.keys.indexes, Range(0, min(size, INDEX_BYTES_MAX) + 1))

    def first_byte(self, name: str) -> bytes:
        """The first byte of an object; NotFound if it is absent."""
        return self._bytes(name, Range(0, 1))

    def bytes_behind_the_log(self) -> bool:
        """True if the `.log` object is longer than it should be; asks the store if no read showed
        it.
        """
        transforms = self.manifest.transforms
        end = self.manifest.log_bytes if transforms is None else transforms.chunks.stored_bytes
        if self._log_object_bytes is not None:
            return self._log_object_bytes > end
        return bool(self._bytes(self.keys.log, Range(end, 1)))

    def log(self, start: int, end: int, on_damage: Damage | None = None) -> Generator[memoryview]:
        """Bytes [start, end) of the segment in pieces; each is valid until the next is asked for.

        Every byte is checked before it is returned; without `on_damage` a wrong checksum raises
        CorruptData. CorruptData also at the position where bytes are missing.
        """
        end = min(end, self.manifest.log_bytes)
        if start >= end:
            return
        sums = self.manifest.checksums if self._verify else None
        if self._transforms is not None:
            pieces = self._transformed(self._transforms, start, end)
        elif sums is not None:
            pieces = self._checked(start, end, sums.log, on_damage)
        else:
            pieces = self._plain(start, end)
        with closing(pieces):
            yield from pieces

    def unchecked_log(self) -> Generator[memoryview]:
        """The whole segment in pieces, as `log`; the caller checks the checksums."""
        end = self.manifest.log_bytes
        if self._transforms is not None:
            return self._transformed(self._transforms, 0, end)
        return self._plain(0, end)

    def wrapped(self, error: NotFound) -> NotFound:
        """The error with the segment's name and offsets, and what to do; unchanged if it has them
        already.
        """
        if isinstance(error, LostSegment):
            return error
        return LostSegment(
            f"{self._named()}, is not in the store {self.segment.store!r} any more ({error}): "
            "retention may have deleted it after the plan. Run the job again, or load the frame or "
            "create the view again, to plan anew; with failOnDataLoss=false missing segments are "
            "skipped"
        )

    @contextmanager
    def naming(self) -> Generator[None]:
        """Adds the segment's name and offsets to a CorruptData of the block."""
        try:
            yield
        except CorruptData as error:
            raise CorruptData(
                f"{error.detail}. It belongs to {self._named()}",
                source=error.source,
                position=error.position,
            ) from error

    def _named(self) -> str:
        segment, partition = self.segment, self.segment.partition
        return (
            f"segment {segment.segment_id.id} of {partition.topic}-{partition.partition}, "
            f"offsets {segment.start_offset} to {segment.end_offset}"
        )

    def _index_range(self, index: IndexType) -> Range | None:
        found = self.manifest.indexes.get(index)
        sums = self.manifest.checksums
        absent = sums is not None and sums.producer_snapshot is ProducerSnapshotOrigin.ABSENT
        if found is None or (absent and index is IndexType.PRODUCER_SNAPSHOT):
            return None
        if found.size > INDEX_BYTES_MAX:
            raise CorruptData(
                f"{found.size} bytes are too many for an index",
                source=self.keys.indexes,
                position=found.position,
            )
        return Range(found.position, found.size)

    def _without_transforms(self, index: IndexType, wanted: Range, stored: bytes) -> bytes:
        if len(stored) < wanted.size:
            raise CorruptData(
                f"the object ends inside the {index.value} index",
                source=self.keys.indexes,
                position=wanted.start + len(stored),
            )
        if self._transforms is None:
            return stored
        return self._transforms.index(stored, wanted.start, source=self.keys.indexes)

    @cached_property
    def _transforms(self) -> ChunkTransforms | None:
        transforms = self.manifest.transforms
        if transforms is None:
            return None
        name = self.keys.log
        encryption = transforms.encryption
        key = None if encryption is None else self._stores.keys.data_key(encryption, source=name)
        return ChunkTransforms(transforms, key, source=name)

    def _plain(self, start: int, end: int) -> Generator[memoryview]:
        piece_bytes = self._store.stream.piece_bytes
        return self._stored(start, ranges(start, end, piece_bytes), end)

    def _checked(
        self, start: int, end: int, sums: ChunkChecksums, on_damage: Damage | None
    ) -> Generator[memoryview]:
        """Fetches whole chunks, checks their checksums, and returns the wanted part."""
        chunk_bytes = sums.chunk_bytes
        piece_bytes = max(self._store.stream.piece_bytes // chunk_bytes, 1) * chunk_bytes
        at = start // chunk_bytes * chunk_bytes
        behind = min(-(-end // chunk_bytes) * chunk_bytes, sums.size_bytes)
        pieces = self._stored(at, ranges(at, behind, piece_bytes), behind)
        with closing(pieces):
            for piece in pieces:
                check_chunks(piece, at, sums, self.keys.log, on_damage)
                yield piece[max(0, start - at) : max(0, end - at)]
                at += len(piece)

    def _stored(self, start: int, wanted: Iterator[Range], end: int) -> Generator[memoryview]:
        """The object's bytes from `start` to `end`; CorruptData if it ends before."""
        at = start
        opened = self._opened(self.keys.log, end)
        pieces = self._store.stream.pieces(opened, wanted)
        try:
            with closing(pieces):
                for piece in pieces:
                    yield piece
                    at += len(piece)
        finally:
            opened.close()
            self._log_object_bytes = opened.object_bytes
        if at < end:
            raise CorruptData(
                f"the object ends here, but {end} bytes or more were stored",
                source=self.keys.log,
                position=at,
            )

    def _opened(self, name: str, end: int) -> BlockingObject:
        in_order = self._store.stream.in_order
        return self._store.reads.open(name, in_order_to=end if in_order else None)

    def _transformed(
        self, transforms: ChunkTransforms, start: int, end: int
    ) -> Generator[memoryview]:
        groups = list(_groups(transforms.chunks, start, end, self._store.stream.piece_bytes))
        wanted = [
            Range(group[0].position, sum(chunk.stored_bytes for chunk in group)) for group in groups
        ]
        at = groups[0][0].original_position
        pieces = self._stored(wanted[0].start, iter(wanted), wanted[-1].start + wanted[-1].size)
        with closing(pieces):
            for group, piece in zip(groups, pieces, strict=False):
                stored_at = 0
                for chunk in group:
                    stored = piece[stored_at : stored_at + chunk.stored_bytes]
                    stored_at += chunk.stored_bytes
                    data = transforms.undone(chunk, stored)
                    yield memoryview(data)[max(0, start - at) : max(0, end - at)]
                    at += len(data)

    def _verified(self, name: str, wanted: Range, sums: ChunkChecksums) -> bytes:
        """A small range, verified by the checksums of its chunks."""
        chunk_bytes, end = sums.chunk_bytes, wanted.start + wanted.size
        start = wanted.start // chunk_bytes * chunk_bytes
        behind = min(-(-end // chunk_bytes) * chunk_bytes, sums.size_bytes)
        data = memoryview(self._bytes(name, Range(start, behind - start)))
        check_chunks(data, start, sums, name)
        if start + len(data) < behind:
            raise CorruptData(
                f"the object ends here, but {sums.size_bytes} bytes were stored",
                source=name,
                position=start + len(data),
            )
        return bytes(data[wanted.start - start : end - start])

    def _bytes(self, name: str, wanted: Range) -> bytes:
        """A range of one object; fewer bytes if the object ends before."""
        if not wanted.size:
            return b""
        end = wanted.start + wanted.size
        opened = self._opened(name, end)
        pieces = self._store.stream.pieces(
            opened, ranges(wanted.start, end, self._store.stream.piece_bytes)
        )
        try:
            with closing(pieces):
                return b"".join(map(bytes, pieces))
        finally:
            opened.close()


def _groups(chunks: ChunkIndex, start: int, end: int, group_bytes: int) -> Iterator[list[Chunk]]:
    """The chunks with bytes [start, end) of the segment, in groups of at most `group_bytes` or one
    chunk.
    """
    group: list[Chunk] = []
    size = 0
    for chunk in chunks.chunks(start, end):
        if group and size + chunk.stored_bytes > group_bytes:
            yield group
            group, size = [], 0
        group.append(chunk)
        size += chunk.stored_bytes
    if group:
        yield group


def check_chunks(
    piece: memoryview,
    position: int,
    sums: ChunkChecksums,
    source: str,
    on_damage: Damage | None = None,
) -> None:
    """Check whole chunks, the first of which begins at `position`, by their checksums.

    Raises CorruptData for the first that differs, or calls `on_damage` for each.
    """
    chunk_bytes, size_bytes = sums.chunk_bytes, sums.size_bytes
    number = position // chunk_bytes
    for at in range(0, len(piece), chunk_bytes):
        computed = crc32c(piece[at : at + chunk_bytes])
        if computed != sums.chunks[number]:
            begins = number * chunk_bytes
            error = CorruptData(
                f"the {min(chunk_bytes, size_bytes - begins)} bytes from here on fail their "
                f"CRC32C: {sums.chunks[number]:08x} is recorded, {computed:08x} computed",
                source=source,
                position=begins,
            )
            if on_damage is None:
                raise error
            on_damage(error)
        number += 1

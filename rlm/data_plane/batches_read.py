"""Reads whole batches of one segment for a Fetch answer, with the aborted transactions that touch
them. Runs in a worker.

The batches are kept in memory until they are sent, since the head of the answer contains their
size. A consumer drops a producer's batches from a listed first offset on, up to the producer's
ABORT marker; so the answer ends before a batch whose outcome such a list can't express.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence

from kafka_formats.batch_scan import ANY_BATCH_BYTES, BatchScanner, ScannedBatch
from kafka_formats.errors import CorruptData, InternalError
from kafka_formats.offset_index import floor_position
from rlm.data_plane.further_requests import FurtherRequests
from rlm.data_plane.read_ahead import RangesAhead
from rlm.data_plane.read_committed import CommittedView, decisions
from rlm.data_plane.read_request import (
    BatchesFound,
    BatchesRequest,
    Isolation,
    LogRequest,
    SegmentResolver,
    SendRules,
    Sent,
)
from rlm.data_plane.segment_reader import SegmentReader
from rlm.data_plane.transaction_walk import Undecided
from rlm.format.manifest import CHUNK_BYTES
from rsm_backends.streams import closing_stream

Aborted = tuple[int, int]
"""Producer id and first offset of an aborted transaction."""


async def read_batches(
    reader: SegmentReader, resolver: SegmentResolver, request: BatchesRequest, ahead: RangesAhead
) -> tuple[BatchesFound, bytes]:
    """The batches as `BatchesFound` and bytes. Raises the errors of a read."""
    batches: Sequence[ScannedBatch] = await _batches(reader, request, ahead)
    if not batches:
        at = min(request.piece.valid_until + 1, request.until)
        return BatchesFound(0, at, (), at, at), b""
    next_offset = batches[-1].header.last_offset + 1
    aborted: tuple[Aborted, ...] = ()
    decided_until = tier_end = next_offset
    if request.isolation is Isolation.READ_COMMITTED and _transactional(batches):
        walk, last = await decisions(
            reader, resolver, request.piece, request.offset, next_offset - 1
        )
        view = CommittedView(walk.aborted, next_offset, walk.undecided)
        batches, unknown = _until_untold(batches, view, walk.undecided)
        next_offset = batches[-1].header.last_offset + 1
        listed = {(each.producer_id, each.first_offset) for each in walk.aborted}
        aborted = tuple(
            sorted(
                (each for each in {*listed, *unknown} if each[1] < next_offset),
                key=lambda each: (each[1], each[0]),
            )
        )
        tier_end = last.valid_until + 1
        decided_until = next_offset
        if walk.open is None:
            decided_until = request.offset
        elif walk.open:
            decided_until = min(next_offset, *(each.first_offset for each in walk.open))
    data = b"".join([batch.data for batch in batches])
    return BatchesFound(len(data), next_offset, aborted, decided_until, tier_end), data


def _transactional(batches: Sequence[ScannedBatch]) -> bool:
    return any(batch.header.is_transactional for batch in batches)


async def _batches(
    reader: SegmentReader, request: BatchesRequest, ahead: RangesAhead
) -> list[ScannedBatch]:
    """The requested batches, not decoded, but compared with their CRCs. The bytes after them are
    fetched ahead.
    """
    segment, offset = request.piece.segment, request.offset
    position = 0
    if offset > segment.start_offset:
        index = await reader.chunk_offset_index(segment)
        position = floor_position(index, offset - segment.start_offset)
    log = await reader.log(segment)
    scanner = BatchScanner(log.key, batch_bytes_max=ANY_BATCH_BYTES, position=position)
    taking = _Taking(request, log.key, jumped=position > 0)
    at, window = position, request.bytes_max + CHUNK_BYTES
    read_before = ahead.read_before(LogRequest(segment, at, at + window), log)
    more = True
    while more and at < log.size_bytes:
        # Read each window to its end: the chunks after the answer are cached for the next one.
        stream = log.stream(at, at + window, first_window_bytes=window, read_before=read_before)
        async with closing_stream(stream) as chunks:
            async for parts in chunks:
                if more:
                    # The scanner requires that each feed is read to its end.
                    found = [batch for part in parts for batch in list(scanner.feed(part))]
                    more = all(taking.take(batch) for batch in found)
        at, window = at + window, 2 * window
    if more:
        scanner.finish()
    if taking.batches:
        first, last = taking.batches[0], taking.batches[-1]
        end = last.position + last.header.size_bytes
        ahead.took(LogRequest(segment, first.position, end, request.following), log)
    return taking.batches


class _Taking:
    """The batches taken so far, and the rule by which the next one is taken."""

    def __init__(self, request: BatchesRequest, source: str, *, jumped: bool) -> None:
        self.batches: list[ScannedBatch] = []
        self._request = request
        self._source = source
        self._jumped = jumped
        self._size_bytes = 0

    def take(self, batch: ScannedBatch) -> bool:
        """Take the batch, or skip it if it ends before the requested offset; False if the answer
        ends before this batch.
        """
        header, request = batch.header, self._request
        if self._jumped and header.base_offset > request.offset:
            raise CorruptData(
                f"an index has this batch for offset {request.offset}, but it begins at "
                f"{header.base_offset}",
                source=self._source,
                position=batch.position,
            )
        self._jumped = False
        if header.last_offset < request.offset:
            return True
        if header.last_offset > request.piece.valid_until or header.base_offset >= request.until:
            return False
        if self.batches and (
            header.last_offset >= request.until
            or self._size_bytes + header.size_bytes > request.bytes_max
        ):
            return False
        self.batches.append(batch)
        self._size_bytes += header.size_bytes
        return True


def _until_untold(
    batches: Sequence[ScannedBatch], view: CommittedView, undecided: Undecided
) -> tuple[Sequence[ScannedBatch], set[Aborted]]:
    """The batches up to the first whose outcome a list can't express, and list entries for the
    transactions with a lost outcome, whose batches the consumer has to drop. After such an entry no
    other transaction of its producer may be in the same answer.
    """
    if not undecided:
        return batches, set()
    first: dict[int, int] = {}
    for number, batch in enumerate(batches):
        header = batch.header
        if not header.is_transactional:
            continue
        before = view.undecided_records
        if view.drops(header) and view.undecided_records > before:
            first.setdefault(header.producer_id, header.base_offset)
        elif header.producer_id in first:
            return batches[:number], set(first.items())
    return batches, set(first.items())


class BatchesHere:
    """Found batches within one process, where no connection can be lent to a worker."""

    def __init__(self, found: BatchesFound, data: bytes) -> None:
        self.found = found
        self._data = data

    async def send_to(
        self, client: socket.socket, rules: SendRules, further: FurtherRequests | None = None
    ) -> Sent:
        """Raise InternalError: these batches can only be read."""
        raise InternalError(
            f"connections are lent to worker processes only: {client}, {rules}, {further}"
        )

    async def read(self) -> bytes:
        return self._data

"""Whole batches of one segment for a Fetch answer, with the aborted transactions that touch them.

They are held until they are sent, so that their size is known before the head of the answer leaves.
Runs in a worker. A consumer leaves a producer's batches out from a listed first offset on, until it
meets the producer's ABORT marker; so the answer ends before a batch that the list can't tell.
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
"""Producer id and first offset."""


async def read_batches(
    reader: SegmentReader, resolver: SegmentResolver, request: BatchesRequest, ahead: RangesAhead
) -> tuple[BatchesFound, bytes]:
    """The batches and what is known of their transactions. Errors are those of a read."""
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
    """Batches, their CRCs compared, that are not decoded; those behind them are fetched ahead."""
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
        # A window is read to its end: what lies behind the answer is kept for the next one.
        stream = log.stream(at, at + window, first_window_bytes=window, read_before=read_before)
        async with closing_stream(stream) as chunks:
            async for parts in chunks:
                if more:
                    # Each feed is exhausted, as the scanner wants it.
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
    """The batches taken so far, and the rule for the next one."""

    def __init__(self, request: BatchesRequest, source: str, *, jumped: bool) -> None:
        self.batches: list[ScannedBatch] = []
        self._request = request
        self._source = source
        self._jumped = jumped
        self._size_bytes = 0

    def take(self, batch: ScannedBatch) -> bool:
        """Take the batch, or skip it if it ends before the offset. False if the answer ends before
        it.
        """
        header, request = batch.header, self._request
        if self._jumped and header.base_offset > request.offset:
            raise CorruptData(
                f"an index names this batch for offset {request.offset}, but it begins at "
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
    """The batches up to the first that a list can't tell, and entries that leave out those whose
    outcome is lost: of such a producer nothing else may follow in the same answer.
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
    """Held batches within one process, where no connection is lent."""

    def __init__(self, found: BatchesFound, data: bytes) -> None:
        self.found = found
        self._data = data

    async def send_to(
        self, client: socket.socket, rules: SendRules, further: FurtherRequests | None = None
    ) -> Sent:
        """Refuse: these batches are to be read here."""
        raise InternalError(
            f"no connection is lent within one process: {client}, {rules}, {further}"
        )

    async def read(self) -> bytes:
        return self._data

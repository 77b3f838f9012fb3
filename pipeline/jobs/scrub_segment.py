"""Scrubs one segment: reads every byte of its three objects and compares it with all recorded
checksums and metadata.

Damage is not an error here: it is recorded as a finding, and the rest is checked all the same.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from contextlib import closing

from kafka_formats import leader_epoch_checkpoint, producer_snapshot, transaction_index
from kafka_formats.batch_scan import ANY_BATCH_BYTES, BatchScanner
from kafka_formats.crc32c import crc32c
from kafka_formats.errors import CorruptData, InvalidRequest, NotFound, Refused, RetryLater
from kafka_formats.leader_epoch_checkpoint import Epochs
from pipeline.catalogue.tiered_segment import TieredSegment
from pipeline.decode.batch_decoder import BatchDecoder, Transactions
from pipeline.decode.rows import Slice
from pipeline.jobs.scrub_log_check import LogCheck
from pipeline.jobs.scrub_log_scan import KnownLog, sound_log
from pipeline.jobs.scrub_verdict import FINDINGS_MAX, MISSING, Finding, Outcome, Verdict
from pipeline.read.manifest_check import differences, manifest_bytes_differ, table_differs
from pipeline.read.open_stores import OpenStores
from pipeline.read.segment_objects import SegmentObjects, check_chunks
from rlm.data_plane.transaction_check import TransactionCheck
from rlm.format.manifest import IndexType, Manifest, ProducerSnapshotOrigin, parse_manifest

RESTORE = (
    "put the object back from a version or a replica of the bucket; until then reads of these "
    "offsets fail"
)
RESTORE_INDEX = (
    "put the object back from a version or a replica of the bucket; until then reads that begin "
    "inside the segment fail or are slow"
)
CHECK_RECORDED = (
    "find out if object or metadata is right: if the metadata is, put the object back from a "
    "version or a replica of the bucket"
)
log = logging.getLogger("strandline.scrub")
ASK_AGAIN = "scrub again once the store answers"
GIVE_ACCESS = "give the job access to the segment, then scrub again"


def scrub_segment(
    segment: TieredSegment, stores: OpenStores, *, records: bool, now_ms: Callable[[], int]
) -> Verdict:
    """The verdict on a segment. `records`: decode every record as well. InvalidRequest for the
    store, which says nothing about the segment.
    """
    scrub, refused = _Scrub(segment, stores, records), False
    try:
        scrub.run()
        outcome = Outcome.DAMAGED if scrub.findings else Outcome.OK
        if scrub.missing == 3:
            outcome = Outcome.GONE
    except RetryLater as error:
        scrub.not_read(f"the store does not answer: {error}", ASK_AGAIN)
        outcome = Outcome.UNREAD
    except Refused as error:  # of this segment: an archived object, a missing key
        outcome, refused = Outcome.DAMAGED if scrub.findings else Outcome.UNREAD, True
        scrub.not_read(str(error), GIVE_ACCESS)
    return Verdict(
        segment.segment_id,
        segment.start_offset,
        segment.end_offset,
        outcome,
        scrub.read_bytes,
        now_ms(),
        records=records,
        checksums=scrub.checksums,
        unverified=scrub.unverified,
        findings=tuple(scrub.findings[:FINDINGS_MAX]),
        more_findings=max(0, len(scrub.findings) - FINDINGS_MAX) + scrub.not_kept,
        refused=refused,
    )


class _Scrub:
    def __init__(self, segment: TieredSegment, stores: OpenStores, records: bool) -> None:
        self._segment = segment
        self._records = records
        self.objects = SegmentObjects(segment, stores)
        self.findings: list[Finding] = []
        self.not_kept = 0
        self.read_bytes = 0
        self.missing = 0
        self.checksums = False
        self.unverified = 0

    def found(
        self,
        key: str,
        what: str,
        action: str = RESTORE,
        position: int | None = None,
        offset: int | None = None,
    ) -> None:
        """Record a finding; beyond twice `FINDINGS_MAX` they are only counted."""
        if len(self.findings) < 2 * FINDINGS_MAX:
            self.findings.append(Finding(key, what, action, position, offset))
        else:
            self.not_kept += 1

    def not_read(self, why: str, action: str) -> None:
        """Record the reason why the segment was not read to its end, before the findings so far."""
        self.findings.insert(0, Finding(self.objects.keys.log, why, action, None, None))

    def run(self) -> None:
        manifest = self._manifest()
        if manifest is None:
            self._look_for_the_others()
            return
        self.objects.manifest = manifest
        self.checksums = manifest.checksums is not None
        indexes = self._indexes(manifest)
        if self._is_sound(manifest, indexes):
            return
        log = self._log(manifest, indexes)
        if log is None:
            return
        name = self.objects.keys.indexes
        wrong: list[str | None] = [
            *self._indexes_differ(manifest, indexes, log.transactions, cleaned=log.cleaned),
            log.offset_index_differs(),
            log.time_index_differs(),
        ]
        for each in filter(None, wrong):
            self.found(name, each, RESTORE_INDEX)
        if (differs := log.largest_timestamp_differs()) is not None:
            self.found(self.objects.keys.log, differs, CHECK_RECORDED)

    def _manifest(self) -> Manifest | None:
        """The manifest if it can be parsed; errors in it are recorded as findings."""
        name = self.objects.keys.manifest
        try:
            data = self.objects.stored_manifest()
        except NotFound:
            self.missing += 1
            self.found(name, MISSING)
            return None
        self.read_bytes += len(data)
        wrong = manifest_bytes_differ(self._segment, data)
        if wrong is not None:
            self.found(name, wrong, position=0)
        try:
            manifest = parse_manifest(data, source=name)
        except CorruptData as error:
            if wrong is None:
                self.found(name, error.detail, position=error.position)
            return None
        for difference in differences(self._segment, manifest):
            self.found(name, difference, CHECK_RECORDED)
        if manifest.checksums is not None:
            for sums in (manifest.checksums.log, manifest.checksums.indexes):
                if (differs := table_differs(sums)) is not None:
                    self.found(name, differs)
        return manifest

    def _look_for_the_others(self) -> None:
        """Only checks that the other objects exist: their content is unknown without a manifest."""
        for name in (self.objects.keys.indexes, self.objects.keys.log):
            try:
                self.objects.first_byte(name)
            except NotFound:
                self.missing += 1
                self.found(name, MISSING)

    def _indexes(self, manifest: Manifest) -> dict[IndexType, bytes]:
        """The readable indexes; checks the whole object's CRC and the range of each index."""
        name, sums = self.objects.keys.indexes, manifest.checksums
        try:
            stored = memoryview(self.objects.stored_indexes())
        except NotFound:
            self.missing += 1
            self.found(name, MISSING)
            return {}
        self.read_bytes += len(stored)
        if sums is not None:
            expected = (sums.indexes.size_bytes, sums.indexes.crc32c)
            if (len(stored), crc32c(stored)) != expected:
                whole = stored[: sums.indexes.size_bytes]
                before = len(self.findings)
                check_chunks(whole, 0, sums.indexes, name, self._damaged)
                if len(stored) != sums.indexes.size_bytes or len(self.findings) == before:
                    self.found(
                        name,
                        f"{expected[0]} bytes with CRC32C {expected[1]:08x} are recorded, "
                        f"{len(stored)} with {crc32c(stored):08x} are stored",
                        RESTORE_INDEX,
                        min(len(stored), sums.indexes.size_bytes),
                    )
        found = {}
        for index in manifest.indexes:
            try:
                data = self.objects.index_in(stored, index)
            except CorruptData as error:
                self.found(name, error.detail, RESTORE_INDEX, error.position)
                continue
            if data is not None:
                found[index] = data
        self._parse_rest(manifest, found)
        return found

    def _parse_rest(self, manifest: Manifest, indexes: dict[IndexType, bytes]) -> None:
        """Checks the two indexes that do not need the log."""
        name = self.objects.keys.indexes
        try:
            snapshot = indexes.get(IndexType.PRODUCER_SNAPSHOT)
            if snapshot is not None and not _absent(manifest):
                producer_snapshot.parse(snapshot, source=name)
            checkpoint = indexes.get(IndexType.LEADER_EPOCH)
            if checkpoint is not None:
                lineage = leader_epoch_checkpoint.parse(checkpoint, source=name)
                if (differs := self._lineage_differs(lineage)) is not None:
                    self.found(name, differs, RESTORE_INDEX)
        except CorruptData as error:
            self.found(name, error.detail, RESTORE_INDEX, error.position)

    def _lineage_differs(self, lineage: Epochs) -> str | None:
        """The difference of the checkpoint from the segment's epochs in the metadata, or None."""
        epochs = self._segment.leader_epochs
        if not epochs:
            return None
        lacking = {each.epoch for each in epochs} - {each.epoch for each in lineage}
        if lacking:
            return f"the leader epoch checkpoint lacks the segment's epochs {sorted(lacking)}"
        # The first may have lost its head to the log start.
        last = lineage[-1]
        right = set(epochs[1:]) <= set(lineage) and last.epoch == epochs[-1].epoch
        if right and last.start_offset <= self._segment.end_offset:
            return None
        told = ", ".join(f"{each.epoch} from {each.start_offset}" for each in lineage[-5:])
        return f"the leader epoch checkpoint differs from the metadata; it ends with {told}"

    def _is_sound(self, manifest: Manifest, indexes: dict[IndexType, bytes]) -> bool:
        """Checks every byte and batch at the store's speed; False if a closer check is needed."""
        if self._records or not manifest.log_bytes:
            return False
        try:
            with closing(self.objects.unchecked_log()) as pieces:
                transactions = sound_log(
                    self._segment,
                    self.objects.keys.log,
                    None if manifest.checksums is None else manifest.checksums.log,
                    pieces,
                    KnownLog(
                        manifest.log_bytes,
                        indexes.get(IndexType.OFFSET),
                        indexes.get(IndexType.TIMESTAMP),
                    ),
                    self._transaction_check(manifest),
                )
            if transactions is None or self.objects.bytes_behind_the_log():
                return False
        except (NotFound, CorruptData):
            return False
        # A log that Kafka's cleaner changed is left to the careful check.
        if any(self._indexes_differ(manifest, indexes, transactions, cleaned=False)):
            return False
        self.read_bytes += manifest.log_bytes
        return True

    def _transaction_check(self, manifest: Manifest) -> TransactionCheck:
        return TransactionCheck(self._segment.start_offset, manifest.open_at_base)

    def _log(self, manifest: Manifest, indexes: dict[IndexType, bytes]) -> LogCheck | None:
        """Checks every byte and every batch; None if the batches could not be read to the end."""
        name = self.objects.keys.log
        check = LogCheck(
            self._segment,
            name,
            lambda what, position, offset: self.found(name, what, RESTORE, position, offset),
            indexes.get(IndexType.OFFSET),
            indexes.get(IndexType.TIMESTAMP),
            self._transaction_check(manifest),
        )
        scanner: BatchScanner | None = BatchScanner(name, batch_bytes_max=ANY_BATCH_BYTES)
        decoder = self._decoder(name)
        try:
            with closing(self.objects.log(0, manifest.log_bytes, self._damaged)) as pieces:
                for piece in pieces:
                    self.read_bytes += len(piece)
                    if scanner is not None and not self._scanned(scanner, check, piece):
                        scanner = None
                    if decoder is not None and not self._decoded(decoder, piece, check):
                        decoder = None
            extra = self.objects.bytes_behind_the_log()
        except NotFound:
            self.missing += 1
            self.found(name, MISSING, offset=self._segment.start_offset)
            return None
        except CorruptData as error:
            self.found(name, error.detail, RESTORE, error.position, check.next_offset)
            return None
        if extra:
            self.found(name, "the object is longer than recorded", CHECK_RECORDED)
        if scanner is None:
            return None
        try:
            scanner.finish()
        except CorruptData as error:
            self.found(name, error.detail, RESTORE, error.position, check.next_offset)
            return None
        if scanner.position < manifest.log_bytes:
            self.found(name, "zeros follow the last batch", RESTORE, scanner.position)
        return check

    def _scanned(self, scanner: BatchScanner, check: LogCheck, piece: memoryview) -> bool:
        """True unless a batch was damaged: the position of the next one is unknown then."""
        try:
            for run in scanner.feed_runs(piece):
                check.take(run)
        except CorruptData as error:
            self.found(error.source, error.detail, RESTORE, error.position, check.next_offset)
            return False
        return True

    def _decoder(self, name: str) -> BatchDecoder | None:
        if not self._records:
            return None
        partition = self._segment.partition
        return BatchDecoder(
            ("key", "value", "offset", "timestamp", "headers"),
            Slice(partition.topic, partition.partition, name),
            transactions=Transactions(read_committed=False),
        )

    def _decoded(self, decoder: BatchDecoder, piece: memoryview, check: LogCheck) -> bool:
        try:
            for _ in decoder.feed(piece):
                pass
        except InvalidRequest as error:
            log.warning("records from here on were not decoded: %s", error)
            return False
        except CorruptData as error:
            if not any(f.position == error.position for f in self.findings):
                self.found(error.source, error.detail, RESTORE, error.position, check.next_offset)
            return False
        return True

    def _indexes_differ(
        self,
        manifest: Manifest,
        indexes: dict[IndexType, bytes],
        log: TransactionCheck,
        *,
        cleaned: bool,
    ) -> Iterator[str]:
        """The differences of transaction index and producer snapshot from the log."""
        name = self.objects.keys.indexes
        data = indexes.get(IndexType.TRANSACTION)
        # An unreadable index is a finding already.
        if data is not None or IndexType.TRANSACTION not in manifest.indexes:
            try:
                entries = transaction_index.parse(data or b"", source=name)
                self.unverified = log.unverified(entries)
                yield from log.differences(entries, cleaned=cleaned)
            except CorruptData as error:
                yield error.detail
        snapshot = indexes.get(IndexType.PRODUCER_SNAPSHOT)
        if snapshot is None or _absent(manifest):
            return
        with contextlib.suppress(CorruptData):  # a finding already
            differs = log.open_differs(producer_snapshot.parse_open(snapshot, source=name))
            if differs is not None:
                yield differs

    def _damaged(self, error: CorruptData) -> None:
        self.found(error.source, error.detail, RESTORE, error.position)


def _absent(manifest: Manifest) -> bool:
    sums = manifest.checksums
    return sums is not None and sums.producer_snapshot is ProducerSnapshotOrigin.ABSENT

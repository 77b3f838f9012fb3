"""Writes a broker's log directory as Kafka would, so that tests can damage it afterwards.

Indexes, snapshots and checkpoints are made here by rules of their own, not by the code under test.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from kafka_formats import (
    leader_epoch_checkpoint,
    offset_checkpoint,
    offset_index,
    producer_snapshot,
    time_index,
    transaction_index,
)
from kafka_formats.compression import Codec
from kafka_formats.control_record import ControlType, control_key
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from kafka_formats.log_names import segment_file_name
from kafka_formats.producer_snapshot import ProducerState
from kafka_formats.properties import (
    MetaProperties,
    encode_meta_properties,
    encode_partition_metadata,
)
from kafka_formats.record_batch import (
    Record,
    encode_batch,
    parse_header,
)
from kafka_formats.topic_id_partition import TopicIdPartition
from kafka_formats.transaction_index import AbortedTransaction
from tests.kafka_formats.transaction_markers import end_transaction_value

CLUSTER_ID = "c3RyYW5kbGluZS10ZXN0Mg"
TOPIC_ID = Uuid(b"orders-topic-id!")
FIRST_TIMESTAMP_MS = 1_700_000_000_000
CAPTURED = Path(__file__).resolve().parents[1] / "data" / "kafka-4.3.0"


def write_log_dir(path: Path, *, cluster_id: str = CLUSTER_ID, node_id: int = 1) -> Path:
    """An empty log directory."""
    path.mkdir(parents=True, exist_ok=True)
    properties = MetaProperties(1, cluster_id, node_id, Uuid(bytes(15) + b"\x09"))
    (path / "meta.properties").write_bytes(encode_meta_properties(properties))
    return path


def write_checkpoint(log_dir: Path, name: str, offsets: dict[tuple[str, int], int]) -> None:
    """One of the offset checkpoints of a log directory."""
    (log_dir / name).write_bytes(offset_checkpoint.encode(offsets))


@dataclass
class ReplicaWriter:
    """Appends to a replica and rolls its segments."""

    log_dir: Path
    topic: str = "orders"
    number: int = 0
    topic_id: Uuid = TOPIC_ID
    next_offset: int = 0
    base_offset: int = 0
    epochs: list[EpochEntry] = field(default_factory=lambda: [EpochEntry(0, 0)])
    producers: dict[int, ProducerState] = field(default_factory=dict)
    aborted: list[AbortedTransaction] = field(default_factory=list)
    batches: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.base_offset = self.next_offset
        self.directory.mkdir(parents=True)
        metadata = encode_partition_metadata(self.topic_id)
        (self.directory / "partition.metadata").write_bytes(metadata)
        self._write_checkpoint()
        self.flush()

    @property
    def partition(self) -> TopicIdPartition:
        return TopicIdPartition(self.topic, self.topic_id, self.number)

    @property
    def directory(self) -> Path:
        return self.log_dir / f"{self.topic}-{self.number}"

    def path(self, offset: int, suffix: str) -> Path:
        return self.directory / segment_file_name(offset, suffix)

    def new_epoch(self, epoch: int) -> None:
        """Another leader; its first batch comes next."""
        self.epochs.append(EpochEntry(epoch, self.next_offset))
        self._write_checkpoint()

    def append(
        self,
        count: int = 1,
        *,
        value_bytes: int = 20,
        codec: Codec = Codec.NONE,
        producer_id: int = -1,
        transactional: bool = False,
    ) -> bytes:
        """One batch of `count` records."""
        first = self.next_offset
        records = [
            Record(
                offset,
                FIRST_TIMESTAMP_MS + offset,
                f"key-{offset}".encode(),
                (f"value-{offset}-".encode() * value_bytes)[:value_bytes],
                (("trace", b"\xff\x00"),) if offset % 2 else (),
            )
            for offset in range(first, first + count)
        ]
        before = self.producers.get(producer_id)
        sequence = -1 if producer_id < 0 else (before.last_sequence + 1 if before else 0)
        batch = encode_batch(
            records,
            base_offset=first,
            codec=codec,
            partition_leader_epoch=self.epochs[-1].epoch,
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else 0,
            base_sequence=sequence,
            transactional=transactional,
        )
        if producer_id >= 0:
            open_from = before.current_txn_first_offset if before else -1
            self.producers[producer_id] = ProducerState(
                producer_id,
                0,
                sequence + count - 1,
                first + count - 1,
                count - 1,
                records[-1].timestamp_ms,
                before.coordinator_epoch if before else -1,
                first if transactional and open_from < 0 else open_from,
            )
        self._take(batch, first + count)
        return batch

    def append_values(self, *values: bytes, codec: Codec) -> None:
        """One batch of records with these values."""
        first = self.next_offset
        records = [
            Record(offset, FIRST_TIMESTAMP_MS + offset, None, value)
            for offset, value in enumerate(values, first)
        ]
        epoch = self.epochs[-1].epoch
        batch = encode_batch(records, base_offset=first, codec=codec, partition_leader_epoch=epoch)
        self._take(batch, first + len(values))

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """A COMMIT or ABORT marker."""
        offset = self.next_offset
        type_ = ControlType.COMMIT if commit else ControlType.ABORT
        batch = encode_batch(
            [
                Record(
                    offset,
                    FIRST_TIMESTAMP_MS + offset,
                    control_key(type_),
                    end_transaction_value(7),
                )
            ],
            base_offset=offset,
            partition_leader_epoch=self.epochs[-1].epoch,
            producer_id=producer_id,
            producer_epoch=0,
            transactional=True,
            control=True,
        )
        before = self.producers[producer_id]
        self.producers[producer_id] = ProducerState(
            producer_id,
            0,
            before.last_sequence,
            before.last_offset,
            before.offset_delta,
            FIRST_TIMESTAMP_MS + offset,
            7,
            -1,
        )
        if not commit and before.current_txn_first_offset >= 0:
            still_open = [
                state.current_txn_first_offset
                for state in self.producers.values()
                if state.current_txn_first_offset >= 0
            ]
            self.aborted.append(
                AbortedTransaction(
                    producer_id,
                    before.current_txn_first_offset,
                    offset,
                    min(still_open, default=offset + 1),
                )
            )
        self._take(batch, offset + 1)

    def skip(self, count: int) -> None:
        """A gap in the offsets, as compaction leaves it."""
        self.next_offset += count

    def flush(self) -> None:
        """Write the active segment's log; its indexes stay preallocated and empty."""
        self.path(self.base_offset, ".log").write_bytes(b"".join(self.batches))
        self.path(self.base_offset, ".index").write_bytes(bytes(64))
        self.path(self.base_offset, ".timeindex").write_bytes(bytes(96))

    def roll(self) -> None:
        """Seal the active segment: trimmed indexes, a producer snapshot, a new active segment."""
        self.flush()
        base = self.base_offset
        offsets, times, position, since = [], [], 0, 0
        last_time, last_time_offset = -1, base
        for batch in self.batches:
            header = parse_header(batch, source="test", position=position)
            if header.max_timestamp > last_time:
                last_time, last_time_offset = header.max_timestamp, header.last_offset
            if since > 4096:
                offsets.append((header.last_offset, position))
                times.append((last_time, last_time_offset))
                since = 0
            since += len(batch)
            position += len(batch)
        if self.batches and (not times or times[-1][0] < last_time):
            times.append((last_time, last_time_offset))
        self.path(base, ".index").write_bytes(offset_index.encode(offsets, base))
        self.path(base, ".timeindex").write_bytes(time_index.encode(times, base))
        if self.aborted:
            self.path(base, ".txnindex").write_bytes(transaction_index.encode(self.aborted))
        self.base_offset = self.next_offset
        self.batches, self.aborted = [], []
        snapshot = producer_snapshot.encode(tuple(self.producers.values()))
        self.path(self.base_offset, ".snapshot").write_bytes(snapshot)
        self.flush()

    def cut_head(self, log_start: int) -> None:
        """Local retention removed everything below `log_start`, a segment's base."""
        for path in list(self.directory.iterdir()):
            if path.name[:20].isdigit() and int(path.name[:20]) < log_start:
                path.unlink()
        kept = leader_epoch_checkpoint.truncate_from_start(tuple(self.epochs), log_start)
        self.epochs = list(kept)
        self._write_checkpoint()

    def _take(self, batch: bytes, next_offset: int) -> None:
        self.batches.append(batch)
        self.next_offset = next_offset

    def _write_checkpoint(self) -> None:
        data = leader_epoch_checkpoint.encode(tuple(self.epochs))
        (self.directory / "leader-epoch-checkpoint").write_bytes(data)

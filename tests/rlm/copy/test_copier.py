"""One attempt to copy: what is promised when it is cancelled, more than once and slowly."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest

from kafka_formats.errors import RetryLater
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import Epochs
from kafka_formats.log_names import segment_file_name
from kafka_formats.record_batch import Record, encode_batch
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.pool_port import PoolPort
from rlm.control.run_events import ignore_event
from rlm.control.segment_proposals import Proposals
from rlm.control.surroundings import CopyLimits, Identity, Surroundings
from rlm.copy.copier import AttemptFailed, Copier, CopyOrder, SlackOf, no_slack
from rlm.data_plane.copy_job import CopyJob, CopyResult, OnProgress
from rlm.local_log.log_dir import LocalSegment
from rlm.local_log.segment_facts import SegmentFacts, segment_facts
from rlm.stores.tier_store import TierStore
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.segment import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    SegmentState,
)
from rsm_backends.memory import MemoryStore
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import new_world
from tests.rlm.planner_facts import ME, ONE_EPOCH, PARTITION
from tests.rlm.virtual_time import START_MS, run_virtually, virtual_ambient

LETS_GO_AFTER_S = 40.0
ORDER = CopyOrder(PARTITION, LocalSegment(0, Path("/log/0.log"), 1_000, 10), ONE_EPOCH, 0, 7)


class Rows(RemoteLogMetadataManager):
    """Takes everything; nobody reads it back."""

    def __init__(self) -> None:
        pass

    async def add_remote_log_segment_metadata(
        self, metadata: RemoteLogSegmentMetadata, *, deadline_s: float = 0
    ) -> int:
        return 1

    async def update_remote_log_segment_metadata(
        self, update: RemoteLogSegmentMetadataUpdate, *, deadline_s: float = 0
    ) -> int:
        return 2

    def segment(self, tip: TopicIdPartition, segment_uuid: Uuid) -> RemoteLogSegmentMetadata | None:
        return None


@dataclass
class SlowPool:
    """A worker that goes on sending for a while after it was told to stop, as the pool allows."""

    started: asyncio.Event = field(default_factory=asyncio.Event)
    sending: bool = False
    segment_uuid: Uuid | None = None

    async def copy(self, job: CopyJob, on_progress: OnProgress | None = None) -> CopyResult:
        self.segment_uuid, self.sending = job.segment_id.id, True
        self.started.set()
        last_byte = asyncio.create_task(asyncio.sleep(0))
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            last_byte = asyncio.create_task(asyncio.sleep(LETS_GO_AFTER_S))
        while not last_byte.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({last_byte})
        self.sending = False
        raise asyncio.CancelledError


def copier(pool: SlowPool, limits: CopyLimits, slack_of: SlackOf = no_slack) -> Copier:
    around = Surroundings(Identity("cluster", None, ME), limits, virtual_ambient())
    return Copier(
        proposals=Proposals(Rows(), around),
        pool=cast(PoolPort, pool),
        on_event=ignore_event,
        confirm_prefix=ours,
        record_cleaned=never_cleaned,
        read_facts=facts,
        slack_of=slack_of,
    )


async def ours(_store: TierStore) -> None:
    """The marker is as it was."""


async def never_cleaned(partition: TopicIdPartition, _why: str) -> None:
    raise AssertionError(f"{partition} was never compacted")


def facts(segment: LocalSegment, lineage: Epochs) -> SegmentFacts:
    return SegmentFacts(segment.size_bytes, 1, txn_index_empty=True, leader_epochs=lineage)


def tier() -> TierStore:
    return TierStore("main", MemoryStore(lambda: 0), "p/")


def test_however_often_it_is_cancelled_an_attempt_ends_only_when_no_byte_follows() -> None:
    async def main() -> None:
        pool = SlowPool()
        attempts = copier(pool, CopyLimits())
        copying = asyncio.create_task(attempts.copy(ORDER, tier(), lambda _: None))
        await pool.started.wait()
        assert pool.segment_uuid is not None
        for _ in range(5):
            copying.cancel()
            await asyncio.sleep(5)
            assert pool.sending
            assert attempts.is_under_way(pool.segment_uuid)
            assert not copying.done()
        await asyncio.wait({copying})
        assert copying.cancelled()
        assert not pool.sending
        assert not attempts.is_under_way(pool.segment_uuid)

    run_virtually(main)


def test_a_stalled_upload_fails_only_when_no_byte_follows() -> None:
    async def main() -> None:
        pool = SlowPool()
        outcome = await copier(pool, CopyLimits(stall_deadline_s=10)).copy(
            ORDER, tier(), lambda _: None
        )
        assert isinstance(outcome, AttemptFailed)
        assert isinstance(outcome.error, RetryLater)
        assert outcome.row is not None
        assert not pool.sending

    run_virtually(main)


def test_a_disk_that_never_answers_fails_the_attempt_instead_of_holding_its_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        monkeypatch.setattr(asyncio, "to_thread", never)
        outcome = await copier(SlowPool(), CopyLimits()).copy(ORDER, tier(), lambda _: None)
        assert isinstance(outcome, AttemptFailed)
        assert isinstance(outcome.error, RetryLater)
        assert "0.log" in str(outcome.error)
        assert outcome.row is None

    run_virtually(main)


def test_a_limited_rate_makes_deadlines_later_and_they_still_end_a_hung_upload() -> None:
    async def main() -> None:
        pool = SlowPool()
        limits = CopyLimits(stall_deadline_s=10, upload_deadline_s=100, copies_parallel_max=2)
        attempts = copier(pool, limits, lambda _topic, size_bytes: size_bytes / 2**20)
        rows: list[RemoteLogSegmentMetadata] = []
        big = replace(ORDER, segment=LocalSegment(0, Path("/log/0.log"), 2**30, 10))
        began_s = asyncio.get_running_loop().time()
        outcome = await attempts.copy(big, tier(), rows.append)
        took_s = asyncio.get_running_loop().time() - began_s - LETS_GO_AFTER_S
        parts_s = 1.5 * 2 * 3 * 12  # of both copies, three parts of 12 MiB each
        assert isinstance(outcome, AttemptFailed)
        assert str(outcome.error).startswith("the upload made no progress for")
        assert 10 + parts_s <= took_s <= 1.25 * (10 + parts_s)
        whole_ms = round((100 + 1.5 * 2 * 1024) * 1000)
        assert rows[0].upload_deadline_ms - rows[0].event_timestamp_ms == whole_ms

    run_virtually(main)


def test_a_log_that_the_cleaner_replaced_behind_its_row_is_copied_under_a_row_of_its_own(
    tmp_path: Path,
) -> None:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, end=25)
    path = log.directory / segment_file_name(0, ".log")
    kept = [Record(at, START_MS, None, b"v", ()) for at in (0, 9)]
    cleaned = encode_batch(kept, base_offset=0, partition_leader_epoch=0)

    def then_cleaned(segment: LocalSegment, lineage: Epochs) -> SegmentFacts:
        found = segment_facts(segment, lineage)
        path.with_suffix(".cleaned").write_bytes(cleaned)
        path.with_suffix(".cleaned").rename(path)
        return found

    async def main() -> None:
        async with new_world(tmp_path, (log.log_dir,)).boot(data_plane=True) as node:
            node.parts.driver.copier.read_facts = then_cleaned
            await node.remote_log.start()
            await asyncio.sleep(30)
            sizes = [
                row.size_bytes
                for row in node.metadata.list_remote_log_segments(log.partition)
                if row.state is SegmentState.COPY_SEGMENT_FINISHED
            ]
            assert sizes == [len(cleaned)]

    run_virtually(main)

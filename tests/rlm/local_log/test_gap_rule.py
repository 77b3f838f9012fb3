"""A gap is damage, unless Kafka's cleaner was seen at or below it."""

from __future__ import annotations

import asyncio
import pickle
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafka_formats import offset_checkpoint, offset_index, time_index
from kafka_formats.crc32c import crc32c
from kafka_formats.log_names import segment_file_name
from kafka_formats.record_batch import Record, encode_batch
from rlm.control.why_not import WhyNot
from rlm.copy.partition_status import PartitionStatus
from rlm.leadership.leadership import Leads, TopicConfig
from rlm.local_log.gap_rule import (
    RANGES_TOLD_MAX,
    GapWatch,
    MissingBatches,
    ranges_text,
    shows_cleaner,
)
from rlmm.records.control_records import GapsAllowed
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.kafka_logs import TIMESTAMP_MS, KafkaLog, new_log_dir
from tests.rlm.one_node import Node, World, new_world
from tests.rlm.virtual_time import run_virtually


@pytest.fixture
def log(tmp_path: Path) -> KafkaLog:
    """Segments at 0, 10 and 20, the active one at 30."""
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, 30, end=35)
    return log


def batch(*offsets: int, last: int | None = None, horizon: bool = False) -> bytes:
    """A batch with these records, perhaps with offsets behind them that lost theirs."""
    records = [Record(at, TIMESTAMP_MS + at, None, b"v", ()) for at in offsets]
    data = bytearray(encode_batch(records, base_offset=offsets[0], partition_leader_epoch=0))
    if last is None and not horizon:
        return bytes(data)
    data[21:23] = (int.from_bytes(data[21:23], "big") | (0x40 if horizon else 0)).to_bytes(2, "big")
    if last is not None:
        data[23:27] = (last - offsets[0]).to_bytes(4, "big")
    data[17:21] = crc32c(data[21:]).to_bytes(4, "big")
    return bytes(data)


def rewrite(log: KafkaLog, base: int, *batches: bytes) -> None:
    path = log.directory / segment_file_name(base, ".log")
    path.write_bytes(b"".join(batches))
    path.with_suffix(".index").write_bytes(offset_index.encode([], base))
    path.with_suffix(".timeindex").write_bytes(time_index.encode([], base))


@dataclass(frozen=True, slots=True)
class Seen:
    """What a node did with one partition."""

    finished: list[tuple[int, int]]
    status: PartitionStatus
    gaps_allowed: str

    def waits(self) -> str:
        """Why; it was not recorded as lost."""
        assert self.status.lost_ranges == ()
        assert self.status.why_not_copying is WhyNot.BLOCKED
        assert self.status.blocked == self.status.why_not_text
        return self.status.why_not_text


async def a_minute(world: World, log: KafkaLog, broker: FakeBroker | None = None) -> Seen:
    """A life of the node, and what it saw in the end."""
    async with world.boot(data_plane=True, broker=broker) as node:
        await node.remote_log.start()
        await asyncio.sleep(60)
        return seen(node, log)


def after_a_minute(tmp_path: Path, log: KafkaLog) -> Seen:
    """The first life of a node without a broker."""

    async def main() -> Seen:
        return await a_minute(new_world(tmp_path, (log.log_dir,)), log)

    return run_virtually(main)


def seen(node: Node, log: KafkaLog) -> Seen:
    state = node.metadata.partition_state(log.partition)
    allowed = "" if state is None else state.gaps_allowed
    return Seen(node.finished(log.partition), node.remote_log.status(log.partition), allowed)


def test_a_segment_that_vanished_between_two_is_waited_for(tmp_path: Path, log: KafkaLog) -> None:
    for file in log.directory.glob("00000000000000000010.*"):
        file.unlink()
    seen = after_a_minute(tmp_path, log)
    assert seen.finished == []
    assert "no good batch of offsets 10 to 19:" in seen.waits()


def test_a_log_alone_that_vanished_is_waited_for(tmp_path: Path, log: KafkaLog) -> None:
    (log.directory / segment_file_name(10, ".log")).unlink()
    seen = after_a_minute(tmp_path, log)
    assert seen.finished == []
    assert "no good batch of offsets 10 to 19:" in seen.waits()


def test_a_segment_cut_at_a_batch_boundary_is_waited_for(tmp_path: Path, log: KafkaLog) -> None:
    rewrite(log, 10, batch(10), batch(11))
    seen = after_a_minute(tmp_path, log)
    assert seen.finished == [(0, 9)]
    assert "no good batch of offsets 12 to 19:" in seen.waits()


def test_an_emptied_segment_is_waited_for(tmp_path: Path, log: KafkaLog) -> None:
    rewrite(log, 10)
    seen = after_a_minute(tmp_path, log)
    assert "no good batch of offsets 10 to 19:" in seen.waits()


def test_a_first_batch_above_the_base_and_one_missing_between_are_named(
    tmp_path: Path, log: KafkaLog
) -> None:
    rewrite(log, 0, batch(2, 3, 4), batch(6, 7, 8, 9))
    why = after_a_minute(tmp_path, log).waits()
    assert "no good batch of offsets 0 to 9:" in why
    assert "files here may have offsets 0 to 9, in batches that" in why


@pytest.mark.parametrize(
    "evidence",
    [batch(12, 13, last=15), batch(12, 13, 14, 15, horizon=True), batch(12, 15)],
    ids=["fewer records than offsets", "delete horizon", "a record gone within a batch"],
)
def test_a_batch_that_only_the_cleaner_makes_allows_gaps_in_its_segment_and_above(
    tmp_path: Path, log: KafkaLog, evidence: bytes
) -> None:
    rewrite(log, 10, batch(11), evidence, batch(18))
    rewrite(log, 20, batch(25))
    seen = after_a_minute(tmp_path, log)
    assert seen.finished == [(0, 9), (10, 19), (20, 29)]
    assert seen.gaps_allowed


def test_a_cleaners_batch_above_a_gap_does_not_allow_it(tmp_path: Path, log: KafkaLog) -> None:
    rewrite(log, 0, batch(5))
    rewrite(log, 10, batch(10, 15))
    assert "no good batch of offsets 0 to 9:" in after_a_minute(tmp_path, log).waits()


def test_the_cleaner_seen_by_an_earlier_life_of_the_node_allows_gaps(
    tmp_path: Path, log: KafkaLog
) -> None:
    rewrite(log, 0, batch(0, 5), batch(6, 7, 8, 9))

    async def main() -> Seen:
        world = new_world(tmp_path, (log.log_dir,))
        await a_minute(world, log)
        log.write(30, 40, end=45)
        rewrite(log, 30, batch(35))
        return await a_minute(world, log)

    assert run_virtually(main).finished == [(0, 9), (10, 19), (20, 29), (30, 39)]


def test_the_cleaners_checkpoint_allows_gaps_of_its_partition_alone(
    tmp_path: Path, log: KafkaLog
) -> None:
    other = KafkaLog.create(log.log_dir, "orders", 1, entries=((0, 0),))
    other.write(0, 10, end=12)
    rewrite(log, 10, batch(15))
    rewrite(other, 0, batch(5))
    checkpoint = log.log_dir / offset_checkpoint.CLEANER_FILE
    checkpoint.write_bytes(offset_checkpoint.encode({("orders", 0): 30}))

    async def main() -> tuple[Seen, Seen]:
        world = new_world(tmp_path, (log.log_dir,))
        return await a_minute(world, log), await a_minute(world, other)

    cleaned, not_cleaned = run_virtually(main)
    assert cleaned.finished == [(0, 9), (10, 19), (20, 29)]
    assert cleaned.gaps_allowed == "the broker's cleaner-offset-checkpoint names it"
    assert "no good batch of offsets 0 to 9:" in not_cleaned.waits()


def test_an_index_without_its_log_is_damage_even_where_gaps_are_legal(
    tmp_path: Path, log: KafkaLog
) -> None:
    (log.directory / segment_file_name(10, ".log")).unlink()
    checkpoint = log.log_dir / offset_checkpoint.CLEANER_FILE
    checkpoint.write_bytes(offset_checkpoint.encode({("orders", 0): 30}))
    assert "no good batch of offsets 10 to 19:" in after_a_minute(tmp_path, log).waits()


def test_a_word_in_the_metadata_allows_gaps(tmp_path: Path, log: KafkaLog) -> None:
    rewrite(log, 10, batch(15))

    async def main() -> Seen:
        world = new_world(tmp_path, (log.log_dir,))
        async with world.boot() as node:
            await node.metadata.record_gaps_allowed(GapsAllowed(log.partition, "a mirror"))
        return await a_minute(world, log)

    assert run_virtually(main).finished == [(0, 9), (10, 19), (20, 29)]


def test_a_compact_policy_seen_once_is_remembered(tmp_path: Path, log: KafkaLog) -> None:
    rewrite(log, 10, batch(15))
    compacted = TopicConfig("compact,delete", -1, -1, remote_storage_enable=False)
    leads = {("orders", 0): Leads(0, 35)}

    async def main() -> tuple[Seen, Seen]:
        world = new_world(tmp_path, (log.log_dir,))
        first = await a_minute(world, log, FakeBroker(dict(leads), compacted))
        return first, await a_minute(world, log, FakeBroker(dict(leads)))

    first, again = run_virtually(main)
    assert first.finished == []
    assert again.finished == [(0, 9), (10, 19), (20, 29)]
    assert again.gaps_allowed == "its topic had cleanup.policy=compact"


@pytest.mark.parametrize("cleaned", [True, False])
def test_a_removed_log_counts_where_the_log_starts_inside_it(cleaned: bool) -> None:
    watch = GapWatch(wanted_from=15, allowed=True, once_there=((12, 12),), cleaned=cleaned)
    watch.gap(11, 19, 0)
    with pytest.raises(MissingBatches) as caught:
        watch.check("test")
    assert caught.value.ranges == ((15, 19),)


def test_a_removed_log_counts_behind_any_number_of_other_gaps() -> None:
    watch = GapWatch(once_there=((5_001, 5_001),))
    for offset in range(RANGES_TOLD_MAX + 1):
        watch.gap(2 * offset, 2 * offset, 0)
    watch.gap(5_000, 5_009, 0)
    watch.cleaner_seen()
    with pytest.raises(MissingBatches) as raised:
        watch.check("test")
    assert raised.value.ranges == ((5_000, 5_009),)


def test_the_error_crosses_a_process_border_with_its_ranges() -> None:
    error = MissingBatches(((1, 2), (5, 9)), source="0.log", position=7)
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, MissingBatches)
    assert (again.ranges, again.source, again.position, str(again)) == (
        error.ranges, "0.log", 7, str(error)
    )  # fmt: skip


def test_a_long_list_of_ranges_is_cut() -> None:
    assert (
        ranges_text([(at, at) for at in range(5)])
        == "offsets 0 to 0, 1 to 1, 2 to 2 and 2 more ranges"
    )


@pytest.mark.parametrize(
    ("batch", "shows"),
    [((0, 0, 1), False), ((0, 9, 10), False), ((0, 9, 9), True), ((0, 0, 0), True),
     ((0x40, 0, 1), True), ((0x20, 0, 1), False)],
)  # fmt: skip
def test_what_only_a_cleaner_writes(batch: tuple[int, int, int], shows: bool) -> None:
    assert shows_cleaner(*batch) is shows

"""What a replica lost is fetched from the others; what nobody has is lost, and nothing else."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kafka_client.replica_answers import Extent
from kafka_formats import offset_checkpoint
from kafka_formats.batch_scan import scan
from kafka_formats.errors import Conflict
from kafka_formats.record_batch import Record, encode_batch
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.why_not import WhyNot
from rlm.data_plane.read_request import RecordsRequest
from rlm.data_plane.segment_survey import SurveyJob, survey
from rlm.leadership.leadership import NoAnswer
from rlm.local_log.gap_rule import Offsets
from rlm.local_log.log_dir import find_partitions
from rlmm.partition_state import LostOffsets
from rlmm.records.control_records import OffsetsSkipped
from tests.rlm.kafka_logs import TIMESTAMP_MS, KafkaLog, new_log_dir
from tests.rlm.one_node import Node, World, new_world
from tests.rlm.replicas import Cluster, all_batches, cluster, give_up, remove
from tests.rlm.tier import copy_job
from tests.rlm.virtual_time import run_virtually

ALL = range(40)


@pytest.fixture
def log(tmp_path: Path) -> KafkaLog:
    """Segments at 0, 10, 20, 30, the active one at 40."""
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, 30, 40, end=45)
    return log


def rewrite(log: KafkaLog, base: int, change: Callable[[bytearray], bytes]) -> None:
    was = (path := log.directory / f"{base:020d}.log").stat()
    path.write_bytes(change(bytearray(path.read_bytes())))
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))  # which a failing disk leaves as it was


@dataclass(frozen=True, slots=True)
class Seen:
    finished: list[tuple[int, int]]
    lost: tuple[LostOffsets, ...]
    why_not: WhyNot | None
    text: str
    offsets: list[int]
    data: bytes


async def nothing_more(_: Node) -> None:
    """The node is left alone."""


def outcome(
    tmp_path: Path,
    log: KafkaLog,
    brokers: Cluster | None,
    then: Callable[[Node], Awaitable[None]] = nothing_more,
) -> Seen:
    """After a minute, `then`, and another minute: what was copied, and what a reader gets."""

    async def main() -> Seen:
        world: World = new_world(tmp_path, (log.log_dir,))
        world.replicas = brokers
        async with world.boot(data_plane=True) as node:
            await node.remote_log.start()
            await asyncio.sleep(60)
            await then(node)
            await asyncio.sleep(60)
            state = node.metadata.partition_state(log.partition)
            assert state is not None
            status = node.remote_log.status(log.partition)
            finished = sorted(node.finished(log.partition))
            data = b""
            if finished:
                pieces = node.parts.reads.records(
                    log.partition, RecordsRequest(state.log_start_offset, 10**9)
                )
                data = b"".join([piece async for piece in pieces])
            offsets = [batch.header.base_offset for batch in scan(data, source="read")]
            return Seen(
                finished,
                state.lost_ranges,
                status.why_not_copying,
                status.why_not_text,
                offsets,
                data,
            )

    return run_virtually(main)


WHOLE = [(0, 19), (20, 29), (30, 39)]


def test_a_segment_that_vanished_is_fetched_from_the_replica_that_has_it(
    tmp_path: Path, log: KafkaLog
) -> None:
    brokers = cluster(log, b1=[*range(10), *range(20, 40)], b2=ALL, b3=None)
    remove(log, 10)
    seen = outcome(tmp_path, log, brokers)
    assert (seen.finished, seen.lost) == (WHOLE, ())
    assert seen.offsets == list(ALL)
    assert list((tmp_path / "mending").iterdir()) == []


def test_what_one_replica_lacks_comes_from_the_next(tmp_path: Path, log: KafkaLog) -> None:
    brokers = cluster(log, b1=[*range(10), *range(20, 40)], b2=[12, 13, 17, *range(20, 40)],
                      b3=[10, 11, 14, 15, 16, 18, 19])  # fmt: skip
    brokers.answer_bytes = 150
    remove(log, 10)
    seen = outcome(tmp_path, log, brokers)
    assert (seen.finished, seen.lost, seen.offsets) == (WHOLE, (), list(ALL))


def test_a_log_that_starts_inside_the_hole_gives_what_it_has(tmp_path: Path, log: KafkaLog) -> None:
    brokers = cluster(log, b1=[], b2=range(14, 40), b3=range(16))
    brokers.brokers[1] = [*range(10), *range(20, 40)]
    brokers.starts = {2: 14}
    remove(log, 10)
    seen = outcome(tmp_path, log, brokers)
    assert (seen.finished, seen.lost, seen.offsets) == (WHOLE, (), list(ALL))


def test_what_no_replica_sends_waits_for_an_admin_and_then_the_rest_is_copied(
    tmp_path: Path, log: KafkaLog
) -> None:
    """A batch turned below the file it stands in is never sent."""
    brokers = cluster(log, b1=[*range(10), *range(20, 40)], b2=[12, 13, *range(20, 40)])
    remove(log, 10)
    seen = outcome(tmp_path, log, brokers)
    assert (seen.finished, seen.lost, seen.why_not) == ([], (), WhyNot.BLOCKED)
    missing = "no good batch of offsets 10 to 11, 14 to 19"
    for broker in (1, 2):
        assert f"broker {broker}: its log goes from 0 to 39, but it sent {missing};" in seen.text
    assert "`strandline partitions skip`" in seen.text
    again = tmp_path / "again"
    again.mkdir()
    seen = outcome(again, log, brokers, give_up)
    assert seen.finished == [(0, 9), (12, 13), (20, 29), (30, 39)]
    assert [(each.start, each.end) for each in seen.lost] == [(10, 11), (14, 19)]


@pytest.mark.parametrize(
    ("starts", "ends", "lost"),
    [({1: 20, 2: 20}, {}, [(10, 19)]), ({1: 20, 2: 17}, {}, [(10, 16)]),
     ({1: 20, 2: 30}, {3: 10}, [(10, 19)]), ({1: 20, 2: 20}, {3: 15}, [(15, 19)])],
)  # fmt: skip
def test_what_lies_outside_the_log_of_every_replica_is_lost_by_itself(
    tmp_path: Path, log: KafkaLog, starts: dict[int, int], ends: dict[int, int],
    lost: list[tuple[int, int]],
) -> None:  # fmt: skip
    brokers = cluster(log, b1=range(20, 40), b2=range(starts[2], 40))
    brokers.starts, brokers.ends = starts, ends
    brokers.brokers |= {node: range(end) for node, end in ends.items()}
    remove(log, 10)
    seen = outcome(tmp_path, log, brokers)
    assert [(each.start, each.end) for each in seen.lost] == lost
    assert seen.offsets == [each for each in ALL if not lost[0][0] <= each <= lost[0][1]]
    assert "broker 1: its log has offsets 20 to 39; " in seen.lost[0].why


class Reassigned(Cluster):
    """Another replica is assigned while the first one is asked."""

    async def extent(self, node_id: int, partition: TopicIdPartition) -> Extent | NoAnswer:
        self.brokers |= {2: ALL}
        return await Cluster.extent(self, node_id, partition)


def test_replicas_that_are_others_than_those_that_were_asked_prove_nothing(
    tmp_path: Path, log: KafkaLog
) -> None:
    known = cluster(log, b1=range(20, 40))
    brokers = Reassigned(known.brokers, known.batches, starts={1: 20})
    remove(log, 10)
    seen = outcome(tmp_path, log, brokers)
    assert (seen.finished, seen.lost, seen.why_not) == ([], (), WhyNot.BLOCKED)
    assert "the replicas have changed meanwhile" in seen.text


def test_a_replica_that_does_not_answer_keeps_everything_waiting(
    tmp_path: Path, log: KafkaLog
) -> None:
    brokers = cluster(log, b1=[*range(10), *range(20, 40)], b2=None)
    remove(log, 10)
    seen = outcome(tmp_path, log, brokers)
    assert (seen.finished, seen.lost, seen.why_not) == ([], (), WhyNot.BLOCKED)
    assert "no good batch of offsets 10 to 19: " in seen.text
    assert "; broker 2: it is down; " in seen.text


def turned(batch: bytes, at: int, to: int) -> bytes:
    """With another byte there."""
    return batch[:at] + bytes([to]) + batch[at + 1 :]


def test_a_batch_with_a_wrong_checksum_is_not_taken(tmp_path: Path, log: KafkaLog) -> None:
    brokers = cluster(log, b1=[*range(10), *range(20, 40)], b2=ALL)
    batch = brokers.batches[12]
    brokers.damage = lambda _, data: data.replace(batch, turned(batch, 65, batch[65] ^ 1))
    remove(log, 10)
    seen = outcome(tmp_path, log, brokers)
    assert (seen.finished, seen.lost) == ([], ())
    assert "no good batch of offsets 12 to 12: " in seen.text
    assert "fails its CRC" in seen.text


def test_a_batch_of_another_lineage_is_not_taken(tmp_path: Path, log: KafkaLog) -> None:
    brokers = cluster(log, b1=[*range(10), *range(20, 40)], b2=ALL)
    batch = brokers.batches[12]
    brokers.damage = lambda _, data: data.replace(batch, turned(batch, 15, 7))
    remove(log, 10)
    seen = outcome(tmp_path, log, brokers)
    assert (seen.finished, seen.lost) == ([], ())
    assert "has leader epoch 7, but the lineage has 0" in seen.text


@pytest.mark.parametrize("at", [0, 400, 65])
def test_a_turned_byte_is_mended_like_a_hole(tmp_path: Path, log: KafkaLog, at: int) -> None:
    brokers = cluster(log, b1=ALL, b2=ALL)

    def turn(data: bytearray) -> bytes:
        data[at] ^= 0x55
        return bytes(data)

    rewrite(log, 10, turn)
    seen = outcome(tmp_path, log, brokers)
    assert seen.finished == [(0, 9), (10, 19), (20, 29), (30, 39)]
    assert (seen.lost, seen.offsets) == ((), list(ALL))


@pytest.mark.parametrize("others", [True, False])
@pytest.mark.parametrize(("offset", "turned"), [(10, 11), (10, 14), (12, 14), (12, 8), (18, 19)])
def test_a_batch_whose_base_offset_turned_over_stands_in_for_no_other(
    tmp_path: Path, log: KafkaLog, offset: int, turned: int, others: bool
) -> None:
    """No CRC has it: it was copied as the record that it said it was, and that one's was passed
    over. The others are good, whether a replica has them or not.
    """
    batches = all_batches(log)
    brokers = cluster(log, b1=ALL if others else [*range(5), offset])

    def turn(data: bytearray) -> bytes:
        data[(offset - 10) * len(batches[10]) + 7] ^= offset ^ turned
        return bytes(data)

    rewrite(log, 10, turn)
    seen = outcome(tmp_path, log, brokers)
    assert (seen.lost, seen.offsets) == ((), list(ALL))
    assert seen.data == b"".join(batches[each] for each in ALL)


def test_a_cut_segment_is_completed(tmp_path: Path, log: KafkaLog) -> None:
    brokers = cluster(log, b1=[], b2=ALL)
    rewrite(log, 10, lambda data: bytes(data[: len(data) // 10 * 4]))
    seen = outcome(tmp_path, log, brokers)
    assert seen.finished == [(0, 9), (10, 19), (20, 29), (30, 39)]
    assert (seen.lost, seen.offsets) == ((), list(ALL))


def test_the_batch_that_the_log_start_lies_in_is_good_though_another_is_damaged(
    tmp_path: Path,
) -> None:
    """DeleteRecords cut the head of the leader epochs inside it."""
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(10, 20, 30, 40, end=45)
    others = all_batches(log)
    records = [Record(each, TIMESTAMP_MS, None, b"x", ()) for each in range(10, 15)]
    first = encode_batch(records, base_offset=10, partition_leader_epoch=0)
    bad = turned(others[17], 65, others[17][65] ^ 1)
    rest = [bad if offset == 17 else others[offset] for offset in range(15, 20)]
    rewrite(log, 10, lambda _: first + b"".join(rest))
    for suffix in ("index", "timeindex"):  # of other positions
        (log.directory / f"{10:020d}.{suffix}").unlink()
    log.set_epochs((0, 12))
    log.set_log_start(12)
    seen = outcome(tmp_path, log, Cluster({1: range(20, 40)}, others), give_up)
    assert [(each.start, each.end) for each in seen.lost] == [(17, 17)]
    assert seen.offsets == [10, 15, 16, *range(18, 40)]


def test_what_an_admin_skips_is_lost_by_name_and_the_rest_is_copied(
    tmp_path: Path, log: KafkaLog
) -> None:
    async def skip(node: Node) -> None:
        damage = node.remote_log.damage_of(log.partition)
        assert damage is not None
        assert damage.missing == ((14, 19),)
        state = node.metadata.partition_state(log.partition)
        assert state is not None
        assert state.claim is not None
        await node.metadata.skip_offsets(
            OffsetsSkipped(log.partition, state.claim.token, 14, 19, "skipped by ann: no copy")
        )
        node.remote_log.try_again(log.partition)

    rewrite(log, 10, lambda data: bytes(data[: len(data) // 10 * 4]))
    seen = outcome(tmp_path, log, None, skip)
    assert seen.finished == [(0, 9), (10, 13), (20, 29), (30, 39)]
    assert seen.lost == (LostOffsets(14, 19, "skipped by ann: no copy"),)


def test_two_bytes_turned_in_one_segment_leave_what_is_between(
    tmp_path: Path, log: KafkaLog
) -> None:
    brokers = cluster(log, b1=[*range(12), *range(13, 16), *range(17, 40)])
    size = len(all_batches(log)[10])

    def turn(data: bytearray) -> bytes:
        data[2 * size + 65] ^= 1
        data[6 * size + 65] ^= 1
        return bytes(data)

    rewrite(log, 10, turn)
    seen = outcome(tmp_path, log, brokers, give_up)
    assert seen.finished == [(0, 9), (10, 11), (13, 15), (17, 19), (20, 29), (30, 39)]
    assert [(each.start, each.end) for each in seen.lost] == [(12, 12), (16, 16)]


def test_the_good_part_of_a_damaged_segment_fills_a_lost_range(
    tmp_path: Path, log: KafkaLog
) -> None:
    """A disk came back, or another replica leads, with less than the whole segment."""
    brokers = cluster(log, b1=[*range(10), *range(20, 40)])
    brokers.starts = {1: 20}
    whole = log.log_bytes(10)
    size = len(all_batches(log)[10])
    remove(log, 10)

    async def comes_back(_: Node) -> None:
        data = bytearray(whole[: 8 * size])
        data[5 * size + 65] ^= 1
        (log.directory / f"{10:020d}.log").write_bytes(data)

    seen = outcome(tmp_path, log, brokers, comes_back)
    assert seen.finished == [(0, 9), (10, 14), (16, 17), (20, 29), (30, 39)]
    assert [(each.start, each.end) for each in seen.lost] == [(15, 15), (18, 19)]
    assert seen.why_not is WhyNot.NO_SEALED_SEGMENT
    assert list((tmp_path / "mending").iterdir()) == []


def test_what_another_replica_has_by_now_fills_the_rest_of_it(
    tmp_path: Path, log: KafkaLog
) -> None:
    brokers = cluster(log, b1=[*range(10), *range(20, 40)])
    brokers.starts = {1: 20}
    kept = log.log_bytes(10)
    remove(log, 10)

    async def comes_back(_: Node) -> None:
        brokers.brokers[2] = range(18, 40)
        (log.directory / f"{10:020d}.log").write_bytes(kept[: len(kept) // 10 * 4])

    seen = outcome(tmp_path, log, brokers, comes_back)
    assert seen.finished == [(0, 9), (10, 13), (18, 19), (20, 29), (30, 39)]
    assert [(each.start, each.end) for each in seen.lost] == [(14, 17)]


def thinned_log(tmp_path: Path, *, left: range, bad: int) -> tuple[KafkaLog, dict[int, bytes]]:
    """A log of which the cleaner has `left` these offsets, with a byte of the batch at `bad`
    turned, and all batches there were.
    """
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 2_400, end=2_405)
    cleaner = log.log_dir / offset_checkpoint.CLEANER_FILE
    cleaner.write_bytes(offset_checkpoint.encode({("orders", 0): 2_400}))
    batches = {
        batch.header.base_offset: bytes(batch.data)
        for batch in scan(log.log_bytes(0), source="test")
    }
    thinned = bytearray(b"".join(batches[offset] for offset in left))
    thinned[left.index(bad) * len(batches[0]) + 65] ^= 1
    rewrite(log, 0, lambda _: bytes(thinned))
    for suffix in ("index", "timeindex"):  # of other positions
        (log.directory / f"{0:020d}.{suffix}").unlink()
    return log, batches


def test_all_of_a_thinned_segment_is_copied_however_many_gaps_it_has(tmp_path: Path) -> None:
    """Each legal gap ended a run, and the survey stops at so many: what was behind went missing."""
    left = range(0, 2_400, 2)
    log, batches = thinned_log(tmp_path, left=left, bad=10)
    seen = outcome(tmp_path, log, Cluster({1: range(12, 2_400, 2), 2: left}, batches))
    assert seen.offsets == list(left)


def test_what_the_cleaner_took_beside_a_mended_batch_is_not_lost(tmp_path: Path) -> None:
    left = range(0, 2_400, 10)
    log, batches = thinned_log(tmp_path, left=left, bad=20)
    seen = outcome(tmp_path, log, Cluster({1: range(30, 2_400, 10), 2: left}, batches))
    assert (seen.finished, seen.lost, seen.offsets) == ([(0, 2_399)], (), list(left))


@pytest.mark.parametrize("start", [15, 20])
def test_a_damaged_batch_at_the_log_start_of_a_thinned_segment_is_no_gap_of_the_cleaner(
    tmp_path: Path, start: int
) -> None:
    """Behind the last good batch, where it was looked for, nothing is wanted any more."""
    left = range(0, 2_400, 10)
    log, batches = thinned_log(tmp_path, left=left, bad=20)
    log.set_epochs((0, start))
    starts = log.log_dir / offset_checkpoint.LOG_START_FILE
    starts.write_bytes(offset_checkpoint.encode({("orders", 0): start}))
    seen = outcome(tmp_path, log, Cluster({1: range(30, 2_400, 10), 2: left}, batches))
    assert (seen.lost, 20 in seen.offsets) == ((), True)


def test_another_batch_of_the_same_length_does_not_stand_in_for_a_lost_one(tmp_path: Path) -> None:
    """A replica that was cleaned at another time, and lost some itself."""
    left = range(0, 2_400, 10)
    log, batches = thinned_log(tmp_path, left=left, bad=20)
    brokers = Cluster({1: [0, 10, 25, *range(30, 2_400, 10)]}, batches)
    assert len(batches[25]) == len(batches[20])
    seen = outcome(tmp_path, log, brokers, give_up)
    assert seen.finished == [(0, 10), (25, 25), (30, 2_399)]
    assert [(each.start, each.end) for each in seen.lost] == [(11, 24), (26, 29)]


def test_a_thinned_segment_waits_for_the_replica_that_may_have_more_of_the_batch(
    tmp_path: Path,
) -> None:
    left = range(0, 2_400, 10)
    log, batches = thinned_log(tmp_path, left=left, bad=20)
    seen = outcome(tmp_path, log, Cluster({1: range(30, 2_400, 10), 2: None}, batches))
    assert (seen.finished, seen.lost) == ([], ())


def test_what_nobody_sends_of_a_thinned_segment_is_given_up_as_far_as_the_good_batches(
    tmp_path: Path,
) -> None:
    """The header of a batch that fails its check does not tell which offsets it had."""
    left = range(0, 2_400, 10)
    log, batches = thinned_log(tmp_path, left=left, bad=20)
    seen = outcome(tmp_path, log, Cluster({1: range(30, 2_400, 10)}, batches), give_up)
    assert seen.finished == [(0, 10), (30, 2_399)]
    assert [(each.start, each.end) for each in seen.lost] == [(11, 29)]


def test_behind_as_many_runs_as_are_told_all_of_a_cleaned_segment_is_missing(
    log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(all_batches(log)[10])

    def turn(data: bytearray) -> bytes:
        data[2 * size + 65] ^= 1
        data[5 * size + 65] ^= 1
        return bytes(data)

    rewrite(log, 10, turn)
    monkeypatch.setattr("rlm.data_plane.segment_survey.RANGES_TOLD_MAX", 2)
    (local,) = find_partitions([log.log_dir], kafka_cluster_id=None).partitions
    job = replace(copy_job(local, local.segments[1]), gaps_allowed=True)
    found = survey(SurveyJob(job, local.segments[1].size_bytes))
    assert [(run.first, run.last) for run in found.runs] == [(10, 11), (13, 14)]
    assert found.missing == ((12, 12), (15, 19))
    assert found.doubtful == ((15, 19),)


@pytest.mark.parametrize(("bytes_max", "missing"), [(70, ((10, 19),)), (128, ())])
def test_a_batch_is_as_large_as_the_setting_says(
    log: KafkaLog, bytes_max: int, missing: tuple[Offsets, ...]
) -> None:
    (local,) = find_partitions([log.log_dir], kafka_cluster_id=None).partitions
    job = copy_job(local, local.segments[1])
    job = replace(job, limits=replace(job.limits, batch_bytes_max=bytes_max))
    assert survey(SurveyJob(job, local.segments[1].size_bytes)).missing == missing


def test_a_segment_that_is_written_to_is_not_taken_for_damaged(log: KafkaLog) -> None:
    (local,) = find_partitions([log.log_dir], kafka_cluster_id=None).partitions
    job = copy_job(local, local.segments[1])
    size = local.segments[1].size_bytes
    assert survey(SurveyJob(job, size)).missing == ()
    rewrite(log, 10, lambda data: bytes(data[:-71]))
    with pytest.raises(Conflict, match="changed while"):
        survey(SurveyJob(job, size))


@pytest.mark.parametrize("at", [65, 15])
def test_a_replica_that_has_something_wrong_is_named_once(
    tmp_path: Path, log: KafkaLog, at: int
) -> None:
    brokers = cluster(log, b2=ALL)
    batch = brokers.batches[12]
    brokers.damage = lambda _, data: data.replace(batch, turned(batch, at, batch[at] ^ 7))
    remove(log, 10)
    seen = outcome(tmp_path, log, brokers)
    assert seen.why_not is WhyNot.BLOCKED
    assert seen.text.count("broker 2") == 1

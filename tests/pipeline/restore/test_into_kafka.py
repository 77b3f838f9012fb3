"""Restored by producing, against a real broker: every record once, however often it is killed."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from rich.console import Console

from kafka_formats.errors import Conflict, Fenced, InvalidRequest
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.jobs import restore as restore_job
from pipeline.jobs.job import JobContext
from pipeline.jobs.restore import IntoKafka, run
from pipeline.read.segment_slice import ReadSettings, plan_slices
from pipeline.restore import kafka_target, produce
from pipeline.restore.kafka_target import (
    KafkaAddress,
    KafkaRecord,
    PartitionWriter,
    Progress,
    TargetTopic,
    committed_progress,
    create_topic,
    find_topic,
    read_partition,
)
from pipeline.restore.produce import PartitionRestore, compare_partition, produce_partition
from pipeline.restore.ranges import Wanted
from pipeline.restore.reports import ProduceReport
from pipeline.restore.restore_note import Begun
from pipeline.restore.target_plan import check_target, new_topic_configs
from rlm.data_plane.read_request import Isolation
from tests.pipeline.restore.captured_tier import CapturedTier, tier_captured
from tests.real.kafka import KAFKA_VERSION, KafkaBroker
from tests.real.kafka_clients import NewRecord, consume_all
from tests.real.kafka_clients import produce as produce_records

pytestmark = [pytest.mark.integration, pytest.mark.timeout(150)]

OWNER = "strandline-restore"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path_factory.mktemp("target") / "broker") as running:
        yield running


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> CapturedTier:
    folder = tmp_path_factory.mktemp("tier") / "bucket"
    return asyncio.run(tier_captured(folder, "codecs", "payments", "profiles"))


def work_for(
    tier: CapturedTier, broker: KafkaBroker, partition: TopicIdPartition, topic: str
) -> PartitionRestore:
    segments = tier.segments(partition)
    first, last = segments[0].first_offset, segments[-1].last_offset
    return PartitionRestore(
        source=partition,
        begun=Begun(str(partition), first, last + 1, "all"),
        slices=tuple(plan_slices(segments, first, last, Isolation.READ_COMMITTED)),
        stores=tier.stores,
        settings=ReadSettings(columns=produce.COLUMNS),
        address=KafkaAddress({"bootstrap.servers": broker.bootstrap}),
        producer_settings={},
        topic=topic,
        owner=OWNER,
        mapped_bytes_max=1 << 20,
    )


def new_topic(broker: KafkaBroker, name: str, partitions: int = 1) -> None:
    broker.create_topic(name, partitions=partitions, config=new_topic_configs({}))


@pytest.mark.parametrize("topic", ["codecs", "profiles"])
def test_keys_values_headers_timestamps_and_tombstones_are_kept(
    broker: KafkaBroker, tier: CapturedTier, topic: str
) -> None:
    new_topic(broker, f"{topic}-again")
    work = work_for(tier, broker, tier.partitions(topic)[0], f"{topic}-again")
    produced = produce_partition(work)
    compared = compare_partition(work)
    assert compared.difference is None
    assert compared.records == produced.records > 0
    assert sum(count for _, _, count in compared.mapping()) == produced.records
    again = produce_partition(work)
    assert again.records == 0
    assert again.resumed is not None
    assert again.resumed.source_offset == work.begun.end_offset


def die_at(call: int, name: str) -> None:
    """SIGKILL of this process at one call of a method of PartitionWriter, after its work if it is
    the commit, in the middle of it if it is sending.
    """
    original = getattr(PartitionWriter, name.removesuffix(" done"))
    calls = 0

    def counted(self: PartitionWriter, argument: object) -> None:
        nonlocal calls
        calls += 1
        if calls == call and not name.endswith(" done"):
            self._producer.flush(30)  # it is in the target's log, uncommitted
            os.kill(os.getpid(), signal.SIGKILL)
        original(self, argument)
        if calls == call:
            os.kill(os.getpid(), signal.SIGKILL)

    setattr(PartitionWriter, name.removesuffix(" done"), counted)


def restore_and_die(work: PartitionRestore, call: int, name: str) -> None:
    produce.TRANSACTION_BYTES = 2_048
    die_at(call, name)
    produce_partition(work)


def test_a_restore_killed_at_every_step_gives_every_record_once(
    broker: KafkaBroker, tier: CapturedTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_topic(broker, "killed", partitions=2)
    work = work_for(tier, broker, tier.partitions("payments")[0], "killed")
    # Each of them is a fork of one that has all loaded, and has talked to no broker.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    steps = ((1, "commit"), (1, "commit done"), (20, "send"), (2, "commit"), (2, "commit done"))
    for call, name in (*steps, (15, "send"), (1, "_send_progress done")):
        process = context.Process(target=restore_and_die, args=(work, call, name))
        process.start()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL, (call, name)
    monkeypatch.setattr(produce, "TRANSACTION_BYTES", 2_048)
    last = produce_partition(work)
    assert last.resumed is not None
    assert last.resumed.source_offset > work.begun.first_offset
    compared = compare_partition(work)
    assert compared.difference is None
    assert compared.records > last.records > 0
    found = consume_all(broker.bootstrap, "killed", 0, isolation="read_committed")
    assert len(found) == compared.records
    everything = consume_all(broker.bootstrap, "killed", 0)
    assert len(everything) > len(found), "no killed run left an uncommitted record"


class Stopped(BaseException):
    """As a kill, but for what is open being aborted at once."""


def restored(
    tier: CapturedTier, broker: KafkaBroker, topic: str, mapping: Path | None = None
) -> ProduceReport:
    """The job, without Spark."""
    spark = mock.Mock(conf={})
    spark.sparkContext.defaultParallelism = 1
    context = JobContext(spark, {}, tier, Console(quiet=True))
    address = KafkaAddress({"bootstrap.servers": broker.bootstrap})
    wanted = Wanted("payments", (0,))

    def run_here(_: Any, items: Sequence[Any], work: Callable[[Any], Any], **__: Any) -> list[Any]:
        return [work(item) for item in items]

    with mock.patch.object(restore_job, "run_tasks", run_here):
        report = run(context, IntoKafka(wanted, address, topic_as=topic, mapping=mapping))
    assert isinstance(report, ProduceReport)
    return report


def test_a_run_goes_on_with_its_range_where_the_tier_is_another_by_then(
    broker: KafkaBroker, tier: CapturedTier, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    partition = tier.partitions("payments")[0]
    segments = tier.segments(partition)
    earlier = replace(tier, found={partition: segments[:-1]})
    expected = restored(earlier, broker, "undisturbed")
    monkeypatch.setattr(produce, "TRANSACTION_BYTES", 2_048)
    commit = PartitionWriter.commit

    def stop_in_the_middle(self: PartitionWriter, progress: Progress) -> None:
        if progress.next_offset > segments[len(segments) // 2].first_offset:
            raise Stopped
        commit(self, progress)

    with mock.patch.object(PartitionWriter, "commit", stop_in_the_middle), pytest.raises(Stopped):
        restored(earlier, broker, "moved")
    address = KafkaAddress({"bootstrap.servers": broker.bootstrap})
    at = committed_progress(address, "moved", [0, 1], OWNER)[0].next_offset
    # One more segment was tiered, and retention took those that are done.
    left = [each for each in segments if each.last_offset >= at]
    assert 0 < len(left) < len(segments)
    later, mapping = replace(tier, found={partition: left}), tmp_path / "mapping.csv"
    mapping.write_text("of the run that saw the first segments")
    with pytest.raises(InvalidRequest, match="name a new file"):
        restored(later, broker, "moved", mapping)
    report = restored(later, broker, "moved", tmp_path / "another.csv")
    (found,), (whole,) = report.partitions, expected.partitions
    assert report.ok
    assert (found.source_start, found.source_end) == (whole.source_start, whole.source_end)
    assert found.compared_from == found.resumed_from == at
    assert found.records == found.same_records
    assert 0 < found.records < whole.records
    assert "not compared and not mapped" in "\n".join(report.lines())
    ours, theirs = (
        consume_all(broker.bootstrap, topic, 0, isolation="read_committed")
        for topic in ("moved", "undisturbed")
    )
    assert [one._replace(offset=0) for one in ours] == [one._replace(offset=0) for one in theirs]


def test_the_last_one_to_take_over_shuts_the_others_out(broker: KafkaBroker) -> None:
    new_topic(broker, "fenced")
    address = KafkaAddress({"bootstrap.servers": broker.bootstrap})
    first = PartitionWriter(address, "fenced", 0, OWNER, {})
    assert first.take_over() is None
    first.commit(Progress(7, "something"))
    first.send(KafkaRecord(7, 1_600_000_000_000, b"k", b"zombie", ()))
    second = PartitionWriter(address, "fenced", 0, OWNER, {})
    assert second.take_over() == Progress(7, "something")
    with pytest.raises(Fenced, match="only the last one continues"):
        first.commit(Progress(8, "something"))
    first.close()
    second.close()
    assert consume_all(broker.bootstrap, "fenced", 0, isolation="read_committed") == []


def test_a_partition_with_records_of_others_is_left_alone(
    broker: KafkaBroker, tier: CapturedTier
) -> None:
    new_topic(broker, "in-use")
    produce_records(broker.bootstrap, "in-use", 0, [NewRecord(b"theirs")])
    work = work_for(tier, broker, tier.partitions("codecs")[0], "in-use")
    with pytest.raises(Conflict, match="holds records that no restore wrote"):
        produce_partition(work)
    assert [one.value for one in consume_all(broker.bootstrap, "in-use", 0)] == [b"theirs"]


def test_another_range_does_not_go_on_where_this_one_stopped(
    broker: KafkaBroker, tier: CapturedTier
) -> None:
    new_topic(broker, "ranges")
    work = work_for(tier, broker, tier.partitions("profiles")[0], "ranges")
    produce_partition(work)
    with pytest.raises(Conflict, match="holds a restore of"):
        produce_partition(replace(work, begun=replace(work.begun, end_offset=1, asked="less")))


def test_what_differs_is_told_by_its_offsets(broker: KafkaBroker, tier: CapturedTier) -> None:
    new_topic(broker, "differs")
    work = work_for(tier, broker, tier.partitions("profiles")[0], "differs")
    produce_partition(work)
    produce_records(broker.bootstrap, "differs", 0, [NewRecord(b"one more")])
    compared = compare_partition(work)
    assert compared.difference is not None
    assert "the target continues at its offset" in compared.difference


def test_a_topic_is_made_so_that_nothing_restored_is_deleted(broker: KafkaBroker) -> None:
    address = KafkaAddress({"bootstrap.servers": broker.bootstrap})
    assert find_topic(address, "made") is None
    create_topic(address, "made", 3, new_topic_configs({"compression.type": "zstd"}))
    broker.wait_until(lambda: find_topic(address, "made") is not None, "the topic")
    made = find_topic(address, "made")
    assert made is not None
    assert made.configs["compression.type"] == "zstd"
    check_target(made, 3, topic="made")
    with pytest.raises(Conflict, match="create it with 4"):
        check_target(made, 4, topic="made")
    broker.alter_topic("made", {"retention.ms": "604800000"})
    altered = find_topic(address, "made")
    assert altered is not None
    with pytest.raises(Conflict, match=r"retention.ms = 604800000"):
        check_target(altered, 3, topic="made")


def test_a_timestamp_that_cannot_be_sent_is_refused_by_its_offset(broker: KafkaBroker) -> None:
    new_topic(broker, "epoch")
    writer = PartitionWriter(
        KafkaAddress({"bootstrap.servers": broker.bootstrap}), "epoch", 0, OWNER, {}
    )
    writer.take_over()
    with pytest.raises(InvalidRequest, match="offset 12 has the timestamp 0"):
        writer.send(KafkaRecord(12, 0, None, b"", ()))
    writer.close()


@pytest.mark.parametrize("said", ["true", "TRUE"])
def test_tasks_that_run_twice_at_once_are_refused_before_anything_is_asked(said: str) -> None:
    spark = mock.Mock(conf={"spark.speculation": said})
    context = JobContext(spark, {}, mock.Mock(), Console(quiet=True))
    options = IntoKafka(Wanted("orders"), KafkaAddress({"bootstrap.servers": "127.0.0.1:1"}))
    with pytest.raises(InvalidRequest, match=r"give --conf spark.speculation=false"):
        run(context, options)


def test_what_a_restore_must_decide_itself_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"transactional.id is set by the restore"):
        kafka_target.KafkaAddress({"transactional.id": "mine"})
    assert "hunter2" not in repr(KafkaAddress({"sasl.password": "hunter2"}))


@pytest.mark.parametrize("version", ["3.9.2", KAFKA_VERSION])
def test_a_topic_that_the_restore_makes_takes_timestamps_of_any_age(
    tmp_path: Path, version: str
) -> None:
    times = (1, int(time.time() * 1000) + 10 * 365 * 86_400_000)
    with KafkaBroker(tmp_path / "broker", version=version) as broker:
        address = KafkaAddress({"bootstrap.servers": broker.bootstrap})
        restore_job._made(IntoKafka(Wanted("x"), address), "made", 1)
        create_topic(address, "theirs", 1, {"message.timestamp.after.max.ms": "3600000"})
        for topic in ("made", "theirs"):
            writer = PartitionWriter(address, topic, 0, OWNER, {})
            writer.take_over()
            try:
                for number, at in enumerate(times):
                    writer.send(KafkaRecord(number, at, None, b"v", ()))
                if topic == "made":
                    writer.commit(Progress(2, "all"))
                    continue
                with pytest.raises(
                    InvalidRequest, match=r"raise message\.timestamp\.after\.max\.ms"
                ):
                    writer.commit(Progress(2, "all"))
            finally:
                writer.close()
        found = [record.timestamp_ms for record in read_partition(address, "made", 0)]
        assert tuple(found) == times


def test_a_broker_before_3_6_gets_the_config_that_it_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As such a broker answers; none is at hand."""
    made: list[dict[str, str]] = []

    def create(_: KafkaAddress, name: str, partitions: int, configs: dict[str, str]) -> None:
        made.append(configs)
        if unknown := [each for each in configs if each == "message.timestamp.after.max.ms"]:
            raise InvalidRequest(f"topic {name}: Unknown topic config name: {unknown[0]}")

    found = TargetTopic("made", 1, {})
    monkeypatch.setattr(restore_job, "create_topic", create)
    monkeypatch.setattr(restore_job, "find_topic", lambda *_: found)
    options = IntoKafka(Wanted("x"), KafkaAddress({"bootstrap.servers": "nowhere:1"}))
    assert restore_job._made(options, "made", 1) is found
    assert made[1]["message.timestamp.difference.max.ms"] == str(2**63 - 1)
    assert not {each for each in made[1] if each.endswith((".after.max.ms", ".before.max.ms"))}
    assert made[1]["retention.ms"] == "-1"

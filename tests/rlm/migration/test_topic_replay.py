"""A metadata topic replayed and checked, by records that Kafka's own manager wrote."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kafka_client.broker_requests import BrokerError
from kafka_formats.batch_scan import scan
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.record_batch import iter_records
from rlm.migration.examination import summaries
from rlm.migration.kafka_cache import Ignored
from rlm.migration.settings_check import check_settings
from rlm.migration.topic_checks import Gap, PartitionRead, check_import, check_reads, passed_over
from rlm.migration.topic_partitioner import metadata_partition
from rlm.migration.topic_replay import TopicReplay, digest
from rlmm.records.records import encode
from rlmm.segment import (
    PartitionDeleteState,
    RemoteLogSegmentId,
    RemotePartitionDeleteMetadata,
    SegmentState,
)
from tests.rlm.migration.test_kafka_cache import PARTITION, id_of, started, update

BY_KAFKA = Path("tests/rlmm/records/data/remote_log_metadata_by_kafka_4.3.0.log")


def values_by_kafka() -> list[bytes]:
    """The records that Kafka 4.3.0 wrote."""
    data = (Path(__file__).parents[3] / BY_KAFKA).read_bytes()
    found = [
        record.value
        for batch in scan(data, source="sample")
        for record in iter_records(batch.data, source="sample", position=batch.position)
    ]
    return [value for value in found if value is not None]


def replayed(values: list[bytes | None]) -> TopicReplay:
    replay = TopicReplay("topic-0")
    for offset, value in enumerate(values):
        replay.apply(offset, value)
    return replay


def test_what_kafka_wrote_is_taken_whole() -> None:
    values = values_by_kafka()
    replay = replayed([*values])
    assert (replay.records, replay.unreadable, replay.ignored) == (len(values), 0, {})
    found = summaries(0, replay)
    assert found
    for each in found:
        assert set(each.segments) <= set(SegmentState) - {SegmentState.DELETE_SEGMENT_FINISHED}
        assert each.digest == digest(replay.caches[each.partition])


def test_a_digest_tells_any_other_state() -> None:
    one = replayed([encode(started(0, 0, 9)).value])
    before = digest(one.caches[PARTITION])
    assert before == digest(replayed([encode(started(0, 0, 9)).value]).caches[PARTITION])
    one.apply(1, encode(update(0, SegmentState.COPY_SEGMENT_FINISHED)).value)
    after = digest(one.caches[PARTITION])
    assert after != before
    again = replayed([encode(started(0, 0, 9)).value, encode(started(1, 0, 9)).value])
    again.apply(2, encode(update(1, SegmentState.COPY_SEGMENT_FINISHED)).value)
    assert digest(again.caches[PARTITION]) != after


def test_a_deleted_partition_is_gone_and_what_comes_after_is_passed_over() -> None:
    def deletion(state: PartitionDeleteState) -> bytes:
        return encode(RemotePartitionDeleteMetadata(PARTITION, 1, 1_000, state)).value

    replay = replayed([encode(started(0, 0, 9)).value])
    replay.apply(1, deletion(PartitionDeleteState.DELETE_PARTITION_MARKED))
    assert replay.deletions == {PARTITION: PartitionDeleteState.DELETE_PARTITION_MARKED}
    assert PARTITION in replay.caches
    replay.apply(2, deletion(PartitionDeleteState.DELETE_PARTITION_FINISHED))
    replay.apply(3, encode(update(0, SegmentState.DELETE_SEGMENT_STARTED)).value)
    assert (replay.caches, replay.deletions) == ({}, {})
    assert replay.ignored == {Ignored.PARTITION_DELETED: 1}


def test_what_is_no_record_is_counted_and_told() -> None:
    replay = replayed([b"", None, b"\x00\x63nonsense", *[b"junk"] * 7])
    assert (replay.records, replay.unreadable) == (10, 10)
    assert len(replay.told_unreadable) == 5
    assert "topic-0 1" in replay.told_unreadable[1]
    assert replay.caches == {}


def test_segments_of_a_partition_that_belong_elsewhere_are_told_and_not_taken() -> None:
    """Behind a topic that was widened a partition would be imported twice, the second time in place
    of the first.
    """
    started_here = encode(started(0, 0, 9)).value
    place = metadata_partition(PARTITION, 50)
    ours = replayed([started_here])
    assert ours.drop_misplaced(place, 50) == []
    assert PARTITION in ours.caches
    before = replayed([started_here])
    (told,) = before.drop_misplaced(place + 1, 50)
    assert told == f"{place + 1} has segments of {PARTITION}, which belong into {place}"
    assert before.caches == {}
    found = check_reads([PartitionRead(place + 1, 0, 1, 1, misplaced=[told])])
    (wrong,) = [check for check in found if not check.ok]
    assert wrong.name == "records are where Kafka puts them"
    gone = [started_here]
    for state in (SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED):
        gone.append(encode(update(0, state)).value)
    nothing_left = replayed([*gone])
    assert nothing_left.drop_misplaced(place + 1, 50) == []
    assert nothing_left.caches == {}, "it would be imported in place of the present segments"


def test_a_whole_topic_passes_each_check() -> None:
    reads = [PartitionRead(0, 0, 4, 3), PartitionRead(1, 0, 0)]
    assert all(check.ok for check in check_reads(reads))
    configs = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    assert check_settings(configs).ok
    assert passed_over(reads) == {}


def test_each_fault_of_a_topic_is_one_check_that_says_what_to_do() -> None:
    reads = [
        PartitionRead(0, 7, 9, 2),
        PartitionRead(1, 0, 9, 5, gaps=(Gap(3, 5),)),
        PartitionRead(2, 0, 9, 9, unreadable=8, told_unreadable=["bad at 1"] * 5),
        PartitionRead(3, 0, 9, error="it has no leader", ignored={Ignored.NOT_A_START: 2}),
        PartitionRead(4, 0, 9, 9, misplaced=["4 has segments of orders-1, which belong into 5"]),
    ]
    found = {check.name: check for check in check_reads(reads)}
    assert not any(check.ok for check in found.values())
    assert "0 begins at 7" in found["each begins at offset 0"].detail
    assert "1: 5 follows 2" in found["no gap"].detail
    assert "and 3 more" in found["every record can be decoded"].detail
    assert (
        "belong into 5: the topic got more partitions"
        in found["records are where Kafka puts them"].detail
    )
    assert "3: it has no leader" in found["partitions are readable"].detail
    assert passed_over(reads) == {"not_a_start": 2}
    refused = check_import(["orders-0: custom metadata of 5000 bytes"])
    assert (refused.ok, "5000 bytes: a switch would fail" in refused.detail) == (False, True)
    assert check_import([]).ok


def test_settings_that_let_records_go_are_named() -> None:
    wrong = check_settings({"cleanup.policy": "compact", "retention.ms": "-1"})
    assert not wrong.ok
    assert "cleanup.policy=compact instead of delete" in wrong.detail
    assert "retention.bytes=None instead of -1" in wrong.detail
    assert "DescribeConfigs" in check_settings(BrokerError("topic_authorization_failed")).detail


def test_partitions_are_told_apart_by_the_topic_s_id() -> None:
    other = replace(PARTITION, topic_id=Uuid(b"other-topic-id-1"))
    anew = replace(started(1, 0, 4), segment_id=RemoteLogSegmentId(other, id_of(1)))
    replay = replayed([encode(started(0, 0, 9)).value, encode(anew).value])
    assert {each.partition for each in summaries(3, replay)} == {PARTITION, other}

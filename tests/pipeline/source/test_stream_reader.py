"""A stream over a tier that grows, shrinks and changes, asked as Spark asks it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from kafka_formats.errors import Conflict, InvalidRequest, NotFound, RetryLater
from pipeline.source import stream_reader, tier_view
from pipeline.source.stream_reader import StreamReader
from pipeline.source.task_partition import TaskPartition
from tests.pipeline.source.tiered import MadeUpCatalogue, partition, segment

P0, P1 = partition(number=0), partition(number=1)
ALL = ReadAllAvailable()


@pytest.fixture
def tier(monkeypatch: pytest.MonkeyPatch) -> MadeUpCatalogue:
    catalogue = MadeUpCatalogue(
        {P0: [segment(10, 19), segment(20, 29)], P1: [segment(0, 9, of=P1)]}
    )
    monkeypatch.setattr(stream_reader, "open_catalogue", lambda options: catalogue)
    return catalogue


def reader(now_ms: int = 10**12, **options: str) -> StreamReader:
    given = {"subscribe": "orders", "isolation": "read_uncommitted", "startingOffsets": "earliest"}
    return StreamReader(given | options, now_ms=lambda: now_ms)


def made(**options: str) -> StreamReader:
    """A reader with an `assign` in place of `subscribe`, where one is given."""
    given = {"isolation": "read_uncommitted"} | options
    return StreamReader(given if "assign" in given else given | {"subscribe": "orders"})


def at(p0: int, p1: int | None = None) -> dict[str, dict[str, Any]]:
    found: dict[str, Any] = {"topicId": str(P0.topic_id), "0": p0}
    return {"orders": found if p1 is None else found | {"1": p1}}


def offsets(tasks: list[InputPartition]) -> list[tuple[int, int]]:
    found = []
    for task in tasks:
        assert isinstance(task, TaskPartition)
        for part in task.slices:
            number = part.segment.partition.partition
            found += [(number, one) for one in range(part.first_offset, part.last_offset + 1)]
    return found


def through_json(value: Any) -> Any:
    """As offsets come back from Spark."""
    return json.loads(json.dumps(value))


def test_a_stream_begins_where_it_is_told(tier: MadeUpCatalogue) -> None:
    assert reader().initialOffset() == at(10, 0)
    assert reader(startingOffsets="latest").initialOffset() == at(30, 10)
    specific = reader(startingOffsets='{"orders": {"0": -1, "1": 4}}')
    assert specific.initialOffset() == at(30, 4)
    with pytest.raises(Conflict, match="orders-1: the starting offset 40 is after"):
        reader(startingOffsets='{"orders": {"0": -1, "1": 40}}').initialOffset()
    with pytest.raises(NotFound, match="parcels"):
        reader(subscribe="parcels").initialOffset()


def test_what_a_stream_cannot_have_is_refused_when_it_is_first_asked(
    tier: MadeUpCatalogue,
) -> None:
    # Not in its constructor: Spark 4.3 loses such an error and tells of a variable of its own.
    asked = reader(endingOffsets="latest")
    with pytest.raises(InvalidRequest, match="endingOffsets"):
        asked.initialOffset()


@pytest.mark.parametrize("strategy", ["subscribe", "assign"])
def test_a_start_that_is_given_counts_for_a_partition_that_is_tiered_later(
    tier: MadeUpCatalogue, strategy: str
) -> None:
    """As that of a query of the broker, which this one is to go on from."""
    given = json.dumps({"orders": {"0": 30, "1": 0, "2": 50, "3": 0, "4": -1}})
    chosen = {"assign": '{"orders": [0, 1, 2, 3, 4]}'} if strategy == "assign" else {}
    with pytest.raises(Conflict, match="orders-2: the starting offset 50 is after the end"):
        made(startingOffsets=given, **chosen).initialOffset()
    stream = made(startingOffsets=given, failOnDataLoss="false", **chosen)
    start = through_json(stream.initialOffset())
    tier.tier |= {(of := partition(number=n)): [segment(0, 59, of=of)] for n in (2, 3)}
    end = through_json(stream.latestOffset(start, ALL))
    read = offsets(stream.partitions(start, end))
    of_2 = [(2, one) for one in range(50, 60)]
    assert read == [(1, n) for n in range(10)] + of_2 + [(3, n) for n in range(60)]


def test_every_offset_is_read_once_as_the_tier_grows(tier: MadeUpCatalogue) -> None:
    stream, read = reader(), []
    start = through_json(stream.initialOffset())
    for grown in ([], [segment(30, 39)], []):
        tier.tier[P0] += grown
        end = through_json(stream.latestOffset(start, ALL))
        read += offsets(stream.partitions(start, end))
        start = end
    assert sorted(read) == [(0, one) for one in range(10, 40)] + [(1, one) for one in range(10)]
    assert len(set(read)) == len(read)
    assert json.dumps(stream.latestOffset(start, ALL)) == json.dumps(start)
    assert stream.partitions(start, start) == []
    assert stream.reportLatestOffset() == start
    assert tier.refreshes == 4
    stream.stop()
    assert tier.closed


def test_a_limit_of_offsets_cuts_batches_and_reaches_the_end_that_was_there(
    tier: MadeUpCatalogue,
) -> None:
    stream = reader(maxOffsetsPerTrigger="9")
    assert stream.getDefaultReadLimit() == ReadMaxRows(9)
    stream.prepareForTriggerAvailableNow()
    tier.tier[P0].append(segment(30, 39))
    start, sizes = through_json(stream.initialOffset()), []
    read: list[tuple[int, int]] = []
    while (end := through_json(stream.latestOffset(start, ReadMaxRows(9)))) != start:
        batch = offsets(stream.partitions(start, end))
        sizes.append(len(batch))
        read += batch
        start = end
    assert sorted(read) == [(0, one) for one in range(10, 30)] + [(1, one) for one in range(10)]
    assert sizes == [9, 9, 9, 3]
    # The trigger may ask for everything, whatever the options say.
    assert reader(maxOffsetsPerTrigger="9").latestOffset(at(10, 0), ALL) == at(40, 10)


def test_too_little_waits_for_more_but_not_for_ever(tier: MadeUpCatalogue) -> None:
    time = [10**12]
    stream = StreamReader(
        {
            "subscribe": "orders",
            "isolation": "read_uncommitted",
            "minOffsetsPerTrigger": "5",
            "maxTriggerDelay": "1m",
        },
        now_ms=lambda: time[0],
    )
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMinRows(5)
    first = stream.latestOffset(at(29, 9), limit)
    assert first == at(30, 10)
    tier.tier[P0].append(segment(30, 32))
    assert stream.latestOffset(first, limit) == first
    time[0] += 60_000
    assert stream.latestOffset(first, limit) == at(33, 10)
    tier.tier[P0].append(segment(33, 39))
    assert stream.latestOffset(at(33, 10), limit) == at(40, 10)


def test_a_new_partition_is_read_from_its_first_offset_on(tier: MadeUpCatalogue) -> None:
    stream = reader()
    end = stream.latestOffset(at(30), ALL)
    assert end == at(30, 10)
    assert offsets(stream.partitions(at(30), end)) == [(1, one) for one in range(10)]


def test_what_retention_deleted_first_fails_the_stream_or_is_passed_over(
    tier: MadeUpCatalogue,
) -> None:
    del tier.tier[P0][0]
    with pytest.raises(Conflict, match="orders-0: offsets 15 to 19 are below"):
        reader().partitions(at(15, 10), at(30, 10))
    calm = reader(failOnDataLoss="false")
    assert offsets(calm.partitions(at(15, 10), at(30, 10))) == [(0, x) for x in range(20, 30)]


def test_a_topic_that_went_or_was_created_anew_fails_the_stream_or_is_read_anew(
    tier: MadeUpCatalogue,
) -> None:
    anew = partition(number=0, topic_id=99)
    del tier.tier[P1]
    tier.tier[anew] = [segment(0, 4, of=anew)]
    del tier.tier[P0]
    with pytest.raises(Conflict, match=r"orders-0: the topic was .*anew.*orders-1: is no longer"):
        reader().latestOffset(at(30, 10), ALL)
    calm = reader(failOnDataLoss="false")
    end = through_json(calm.latestOffset(at(30, 10), ALL))
    assert end == {"orders": {"topicId": str(anew.topic_id), "0": 5}}
    assert offsets(calm.partitions(at(30, 10), end)) == [(0, one) for one in range(5)]
    # Planned for the old one, which is gone by the time it is to be read.
    with pytest.raises(Conflict, match="orders-0: is no longer tiered"):
        reader().partitions(at(30, 10), at(35, 10))


def test_spark_4_1_is_told_of_a_topic_that_went_or_was_created_anew(tier: MadeUpCatalogue) -> None:
    """It asks for the end without saying where the stream stands."""
    anew = partition(number=0, topic_id=99)
    old, calm = reader(), reader(failOnDataLoss="false")
    assert old.latestOffset() == calm.latestOffset() == at(30, 10)
    tier.tier.clear()
    for stream in (old, reader()):  # the second one was started again
        end = through_json(stream.latestOffset())
        with pytest.raises(Conflict, match="orders-0: is no longer tiered"):
            stream.partitions(at(30, 10), end)
    tier.tier[anew] = [segment(0, 4, of=anew)]
    for stream in (old, reader()):
        end = through_json(stream.latestOffset())
        with pytest.raises(Conflict, match=r"orders-0: the topic was .*orders-1: is no longer"):
            stream.partitions(at(25, 10), end)
    end = through_json(calm.latestOffset())
    assert end == {"orders": {"topicId": str(anew.topic_id), "0": 5}}
    assert offsets(calm.partitions(at(25, 10), end)) == [(0, one) for one in range(5)]


def test_under_spark_4_1_a_partition_that_comes_back_is_not_read_twice(
    tier: MadeUpCatalogue,
) -> None:
    stream = reader()
    start = through_json(stream.latestOffset())
    tier.tier.pop(P1)  # all of it expired
    end = through_json(stream.latestOffset())
    assert (end, stream.partitions(start, end)) == (start, [])
    with pytest.raises(Conflict, match="orders-1: is no longer tiered"):
        stream.partitions(at(30, 5), end)
    tier.tier[P1] = [segment(10, 12, of=P1)]
    start, end = end, through_json(stream.latestOffset())
    assert offsets(stream.partitions(start, end)) == [(1, one) for one in range(10, 13)]
    tier.tier[P1] = [segment(20, 22, of=P1)]
    with pytest.raises(Conflict, match="orders-1: offsets 13 to 19 are below"):
        stream.partitions(end, through_json(stream.latestOffset()))


@pytest.mark.parametrize("fail", ["true", "false"])
def test_under_spark_4_1_a_restarted_stream_goes_on_without_a_partition_that_expired(
    tier: MadeUpCatalogue, fail: str, caplog: pytest.LogCaptureFixture
) -> None:
    tier.tier.pop(P1)
    again = reader(failOnDataLoss=fail)
    end = through_json(again.latestOffset())
    assert (end, again.partitions(at(30, 10), end)) == (at(30), [])
    assert "orders-1" in caplog.text
    start, end = end, through_json(again.latestOffset())
    assert (end, again.partitions(start, end)) == (at(30, 10), [])
    tier.tier[P1] = [segment(5, 12, of=P1)]  # as where an admin took a deletion back
    start, end = end, through_json(again.latestOffset())
    assert offsets(again.partitions(start, end)) == [(1, 10), (1, 11), (1, 12)]


def test_under_spark_4_1_a_partition_is_back_at_once_after_a_restart(tier: MadeUpCatalogue) -> None:
    tier.tier.pop(P1)
    again = reader()
    start = through_json(again.latestOffset())
    again.partitions(at(30, 10), start)
    tier.tier[P1] = [segment(5, 12, of=P1)]
    found = again.partitions(start, through_json(again.latestOffset()))
    assert offsets(found) == [(1, 10), (1, 11), (1, 12)]


def test_under_spark_4_1_a_batch_planned_by_a_node_behind_is_told_what_to_do_about(
    tier: MadeUpCatalogue,
) -> None:
    """Spark keeps the end that it was given after a restart, below where the stream stands."""
    newest = tier.tier[P0].pop()
    behind = reader()
    end = through_json(behind.latestOffset())
    assert end == at(20, 10)
    with pytest.raises(RetryLater, match="orders-0: the stream has read to offset 30"):
        behind.partitions(at(30, 10), end)
    tier.tier[P0] += [newest, segment(30, 32)]
    with pytest.raises(InvalidRequest, match="offsets, remove the file with the highest") as told:
        reader().partitions(at(30, 10), end)
    assert told.value.field == "checkpointLocation"
    again = reader()
    end = through_json(again.latestOffset())
    assert offsets(again.partitions(at(30, 10), end)) == [(0, 30), (0, 31), (0, 32)]


def test_a_partition_that_expired_keeps_its_position_where_spark_gives_it(
    tier: MadeUpCatalogue,
) -> None:
    tier.tier.pop(P1)
    for stream in (reader(), reader(maxOffsetsPerTrigger="5")):
        end = through_json(stream.latestOffset(at(30, 10), stream.getDefaultReadLimit()))
        assert (end, stream.partitions(at(30, 10), end)) == (at(30, 10), [])


def test_in_a_bucket_alone_a_topic_that_went_may_have_expired(tier: MadeUpCatalogue) -> None:
    """A node says which; nothing in a bucket does."""
    other = replace(P0, topic="parcels", topic_id=partition(topic_id=7).topic_id)
    tier.tier[other] = [segment(0, 9, of=other)]
    before = through_json(reader(subscribe="orders,parcels").latestOffset())
    del tier.tier[other]
    with pytest.raises(Conflict, match="parcels-0: is no longer tiered"):
        reader(subscribe="orders,parcels").partitions(before, at(30, 10))
    with pytest.raises(Conflict, match="parcels-0: is no longer tiered"):
        reader(subscribe="orders,parcels").latestOffset(before, ALL)
    tier.tells_deletions = False
    assert reader(subscribe="orders,parcels").latestOffset(before, ALL) == before
    again = reader(subscribe="orders,parcels")
    assert again.partitions(before, through_json(again.latestOffset())) == []
    end = through_json(again.latestOffset())
    assert (end, again.partitions(at(30, 10), end)) == (before, [])


def test_a_node_that_is_behind_never_leads_back(tier: MadeUpCatalogue) -> None:
    assert reader().latestOffset(at(35, 10), ALL) == at(35, 10)
    with pytest.raises(RetryLater, match="orders-0: the stream has read to offset 35"):
        reader().partitions(at(35, 10), at(30, 10))
    # Spark 4.1 does not say where the stream stands.
    old = reader()
    assert old.latestOffset() == at(30, 10)
    del tier.tier[P0][-1]
    assert old.latestOffset() == at(30, 10)


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_batch_that_is_repeated_waits_for_a_node_that_is_behind(
    tier: MadeUpCatalogue, fail: str
) -> None:
    planned = through_json(reader().latestOffset(at(15, 0), ALL))
    newest = tier.tier[P0].pop()
    again = reader(failOnDataLoss=fail)
    with pytest.raises(
        RetryLater, match=r"orders-0: .* offsets 15 to 29, .* ends before 20: it lags"
    ):
        again.partitions(at(15, 0), planned)
    with pytest.raises(RetryLater, match=r"orders-0: .* offsets 20 to 29"):
        again.partitions(at(20, 10), planned)
    with pytest.raises(RetryLater, match=r"orders-0: .* offsets 10 to 29"):
        again.partitions({}, planned)
    # What the batch does not read may be ahead of this node.
    assert offsets(again.partitions(at(30, 0), planned)) == [(1, one) for one in range(10)]
    tier.tier[P0].append(newest)
    found = offsets(reader(failOnDataLoss=fail).partitions(at(15, 10), planned))
    assert found == [(0, one) for one in range(15, 30)]


def test_what_is_missing_below_the_end_that_a_node_knows_is_lost(tier: MadeUpCatalogue) -> None:
    tier.tier[P0] = [segment(10, 19), segment(25, 29)]
    with pytest.raises(Conflict, match="orders-0: offsets 20 to 24 are in no tiered segment"):
        reader().partitions(at(15, 10), at(30, 10))
    calm = reader(failOnDataLoss="false")
    read = [*range(15, 20), *range(25, 30)]
    assert offsets(calm.partitions(at(15, 10), at(30, 10))) == [(0, one) for one in read]
    # The last segment was deleted, and the node knows that there was one: nothing to wait for.
    tier.tier[P0].pop()
    tier.ends[P0] = 30
    assert offsets(calm.partitions(at(15, 10), at(30, 10))) == [(0, x) for x in range(15, 20)]


def test_offsets_whose_transaction_is_not_decided_yet_are_waited_for(
    tier: MadeUpCatalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the batch was planned by a query that read uncommitted."""
    monkeypatch.setattr(tier_view, "stable_end", lambda segments, *_: 22)
    again = reader(isolation="read_committed", failOnDataLoss="false")
    with pytest.raises(RetryLater, match=r"orders-0: .* transaction open at 22 .*isolation"):
        again.partitions(at(15), at(30))
    assert offsets(again.partitions(at(15), at(22))) == [(0, one) for one in range(15, 22)]


def test_what_a_checkpoint_of_kafkas_own_source_names_is_waited_for_or_told(
    tier: MadeUpCatalogue,
) -> None:
    """Its ends are a broker's, whose last records are tiered later."""
    begin = {"orders": {"0": 12, "1": 10, "2": 0}, "parcels": {"0": 3}}
    with pytest.raises(RetryLater, match=r"orders-0: .* offsets 12 to 34"):
        reader().partitions(begin, {"orders": {"0": 35}})
    end = {"orders": {"0": 14, "1": 10, "2": 0}, "parcels": {"0": 5}}
    with pytest.raises(Conflict, match="parcels-0: is no longer tiered"):
        reader().partitions(begin, end)
    calm = reader(failOnDataLoss="false")
    assert offsets(calm.partitions(begin, end)) == [(0, 12), (0, 13)]


def test_a_checkpoint_of_kafkas_own_source_goes_on(tier: MadeUpCatalogue) -> None:
    kafkas = {"orders": {"0": 12, "1": 10}}
    stream = reader()
    assert stream.latestOffset(kafkas, ALL) == at(30, 10)
    assert offsets(stream.partitions(kafkas, {"orders": {"0": 14, "1": 10}})) == [(0, 12), (0, 13)]

"""What the data source takes, what it refuses, and which option wins."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from kafka_formats.errors import InvalidRequest
from pipeline.decode.schema import COLUMNS as EVERY_COLUMN
from pipeline.source.offset_limits import (
    EARLIEST,
    LATEST,
    AtTimestamp,
    OffsetLimit,
    SpecificOffsets,
    SpecificTimestamps,
)
from pipeline.source.options import OPTIONS, SourceOptions, parse_options
from rlm.data_plane.read_request import Isolation

OFFSETS = '{"orders": {"0": 23, "1": -2}}'
TIMES = '{"orders": {"0": 1760000000000}}'


def parse(**options: str) -> SourceOptions:
    given = {name.replace("__", "."): value for name, value in options.items()}
    return parse_options({"subscribe": "orders"} | given)


def test_a_query_for_a_broker_is_taken_as_it_is() -> None:
    options = parse_options(
        {
            "kafka.bootstrap.servers": "broker:9092",
            "SUBSCRIBE": " orders , payments,orders",
            "StartingOffsets": " Earliest ",
            "failondataloss": "FALSE",
            "includeheaders": "true",
            "minpartitions": "7",
        }
    )
    assert options.subscription.topics == ("orders", "payments")
    assert options.batch_start() is EARLIEST
    assert options.batch_end() is LATEST
    assert not options.fail_on_data_loss
    assert options.columns == EVERY_COLUMN
    assert options.min_partitions == 7


def test_defaults_are_those_of_spark_but_for_isolation() -> None:
    options = parse()
    assert options.batch_start() is EARLIEST
    assert options.stream_start() is LATEST
    assert options.fail_on_data_loss
    assert options.isolation is Isolation.READ_COMMITTED
    assert options.columns == EVERY_COLUMN[:-1]
    assert options.max_trigger_delay_ms == 900_000
    assert options.min_partitions is options.max_records_per_partition is None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"Offsets": OFFSETS}, SpecificOffsets({("orders", 0): 23, ("orders", 1): -2})),
        (
            {"Offsets": OFFSETS, "OffsetsByTimestamp": TIMES},
            SpecificTimestamps({("orders", 0): 1_760_000_000_000}),
        ),
        ({"Offsets": "x", "OffsetsByTimestamp": "x", "Timestamp": "5"}, AtTimestamp(5)),
    ],
)
def test_one_time_wins_over_times_and_these_over_offsets(
    given: Mapping[str, str], expected: OffsetLimit
) -> None:
    options = parse(**{f"starting{name}": value for name, value in given.items()})
    assert options.starting == expected
    options = parse(**{f"ending{name}": value for name, value in given.items()})
    assert options.ending == expected


REFUSED = [
    ("subscribe", {"assign": '{"orders": [0]}'}, "exactly one"),
    ("subscribe", {"subscribe": " , "}, "names no topic"),
    ("assign", {"assign": '{"orders": [-1]}'}, "at least 0"),
    ("assign", {"assign": '{"orders": []}'}, "list of partitions"),
    ("assign", {"assign": "[1]"}, "JSON"),
    ("subscribePattern", {"subscribePattern": "("}, "regular expression"),
    ("startingOffsets", {"startingOffsets": "soon"}, "earliest"),
    ("startingOffsets", {"startingOffsets": '{"orders": {"0": -3}}'}, "orders-0"),
    ("startingOffsets", {"startingOffsets": '{"orders": {"0": 1.5}}'}, "orders-0"),
    ("startingOffsets", {"startingOffsets": '{"orders": {"one": 1}}'}, "not a partition"),
    ("startingOffsets", {"startingOffsets": '{"or/ders": {"0": 1}}'}, "or/ders"),
    ("startingOffsets", {"startingOffsets": '{"a": {"0": 1, "0": 2}}'}, "a-0 is named twice"),
    ("endingOffsets", {"endingOffsets": '{"a": {"3": 1, "03": 1}}'}, "a-3 is named twice"),
    ("startingOffsets", {"startingOffsets": '{"a": {"0": 1}, "a": {"1": 2}}'}, "a is named twice"),
    ("startingOffsets", {"startingOffsets": '{"orders": {"0": {}}}'}, "orders-0"),
    ("startingOffsets", {"startingOffsets": '{"orders": {}}'}, "needs its partitions"),
    ("startingOffsets", {"startingOffsets": '{"orders": [0]}'}, "needs its partitions"),
    ("startingOffsets", {"startingOffsets": "{}"}, "not a JSON object"),
    (
        "startingOffsetsByTimestamp",
        {"startingOffsetsByTimestamp": '{"a": {"1": 5, "1": 6}}'},
        "a-1 is named twice",
    ),
    ("assign", {"assign": '{"orders": [0], "orders": [1]}'}, "orders is named twice"),
    ("endingOffsetsByTimestamp", {"endingOffsetsByTimestamp": '{"orders": {"0": -1}}'}, "orders"),
    ("startingTimestamp", {"startingTimestamp": "yesterday"}, "whole number"),
    ("startingOffsetsByTimestampStrategy", {"startingOffsetsByTimestampStrategy": "x"}, "latest"),
    ("failOnDataLoss", {"failOnDataLoss": "yes"}, "true or false"),
    ("minPartitions", {"minPartitions": "0"}, "from 1"),
    ("maxRecordsPerPartition", {"maxRecordsPerPartition": "1e3"}, "whole number"),
    ("minOffsetsPerTrigger", {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "above"),
    ("maxTriggerDelay", {"maxTriggerDelay": "a while"}, "15m"),
    ("isolation", {"isolation": "serializable"}, "read_uncommitted"),
    ("columns", {"columns": "key,values"}, "'values'"),
    ("kafka.group.id", {"kafka__group__id": "g"}, "without a broker"),
    ("kafka.isolation.level", {"kafka__isolation__level": "read_committed"}, "isolation"),
    ("groupIdPrefix", {"groupIdPrefix": "g"}, "no consumer group"),
    ("provider", {"provider": "strandline"}, "CREATE TEMP VIEW"),
    ("fetchOffset.numRetries", {"fetchOffset__numRetries": "3"}, "without a broker"),
    ("strandline.sotre", {"strandline__sotre": "s3://b"}, "not an option"),
    ("startingOffset", {"startingOffset": "earliest"}, "startingOffsets"),
]


@pytest.mark.parametrize(("field", "options", "words"), REFUSED)
def test_what_is_wrong_is_refused_by_its_name(
    field: str, options: Mapping[str, str], words: str
) -> None:
    given = dict(options)
    if field in ("assign", "subscribePattern"):
        given = {name.replace("__", "."): value for name, value in given.items()}
        with pytest.raises(InvalidRequest, match=words) as refused:
            parse_options(given)
    else:
        with pytest.raises(InvalidRequest, match=words) as refused:
            parse(**given)
    assert refused.value.field == field
    assert field in str(refused.value)


def test_a_query_without_topics_is_told_how_to_say_them() -> None:
    with pytest.raises(InvalidRequest, match="subscribe, subscribePattern, assign"):
        parse_options({})


@pytest.mark.parametrize(
    ("options", "which"),
    [
        ({"startingOffsets": "latest"}, "batch_start"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "batch_start"),
        ({"endingOffsets": "earliest"}, "batch_end"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "batch_end"),
    ],
)
def test_a_batch_that_would_always_be_empty_is_refused(
    options: Mapping[str, str], which: str
) -> None:
    with pytest.raises(InvalidRequest, match="can't be") as refused:
        getattr(parse(**options), which)()
    assert refused.value.field == next(iter(options))


@pytest.mark.parametrize("option", ["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"])
def test_a_stream_refuses_what_only_a_batch_has(option: str) -> None:
    values = {"endingOffsets": "latest", "endingTimestamp": "5"}
    options = parse(**{option: values.get(option, TIMES)})
    with pytest.raises(InvalidRequest) as refused:
        options.check_stream(admission_control=True)
    assert refused.value.field == option


def test_filters_by_spark_are_refused_since_it_would_keep_them_for_later_queries() -> None:
    with pytest.raises(InvalidRequest, match="later queries, which would lack rows") as refused:
        parse(filterPushdown="true")
    assert refused.value.field == "filterPushdown"
    assert parse(filterPushdown="false").starting == parse().starting


def test_limits_of_a_trigger_need_a_spark_that_asks_for_them_and_mean_nothing_in_a_batch() -> None:
    options = parse(maxOffsetsPerTrigger="10", maxTriggerDelay="30s")
    options.check_stream(admission_control=True)
    assert options.max_trigger_delay_ms == 30_000
    assert options.ignored_in_batch() == ("maxOffsetsPerTrigger", "maxTriggerDelay")
    with pytest.raises(InvalidRequest, match=r"maxOffsetsPerTrigger: .*4\.2"):
        options.check_stream(admission_control=False)


def test_columns_keep_the_order_of_the_schema_and_win_over_include_headers() -> None:
    assert parse(columns="Offset, headers,KEY").columns == ("key", "offset", "headers")
    assert parse(columns="offset", includeHeaders="true").columns == ("offset",)


def test_where_the_keys_of_encrypted_segments_are_goes_to_the_tasks() -> None:
    options = parse(strandline__aiven__keys="/keys/a.pem, /keys/old")
    assert options.read_settings().aiven_keys == ("/keys/a.pem", "/keys/old")


def test_every_option_is_in_the_users_page() -> None:
    page = (Path(__file__).parents[3] / "docs" / "PIPELINE.md").read_text()
    section = page.split("## The data source")[1].split("\n## ")[0]
    assert [name for name in OPTIONS if f"`{name}`" not in section] == []

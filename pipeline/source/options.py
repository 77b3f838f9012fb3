"""The options of a query: those of spark-sql-kafka, and those that only tiered history needs. Pure.

Names are case-insensitive. An option that is unknown, or has no effect without a broker, is refused
by its name: silently ignoring an option would give a wrong result without a sign.
Source: Spark's KafkaSourceProvider (precedence, defaults and refusals).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kafka_formats.errors import InvalidRequest
from pipeline.catalogue.node_address import NODE_OPTIONS
from pipeline.catalogue.store_options import is_store_option
from pipeline.read.segment_slice import (
    AIVEN_KEYS_OPTION,
    COLUMNS,
    ReadSettings,
    aiven_keys_in,
)
from pipeline.source.offset_limits import (
    EARLIEST,
    LATEST,
    AtTimestamp,
    OffsetLimit,
    SpecificOffsets,
    SpecificTimestamps,
    parse_assignment,
    parse_offsets,
    parse_timestamps,
)
from rlm.data_plane.read_request import Isolation

HEADERS = "headers"
INT64_MAX = 2**63 - 1
MAX_TRIGGER_DELAY_DEFAULT_MS = 15 * 60 * 1000

OPTIONS = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "includeHeaders",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxBatchBytes",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "isolation",
    "columns",
    "filterPushdown",
)
_ENDING = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
BATCH_BYTES_MAX = 512 * 1024 * 1024
"""Largest batch whose column is sure to fit the 32-bit offsets of Arrow."""

_PER_TRIGGER = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_STRATEGIES = ("subscribe", "subscribePattern", "assign")
_IGNORED = ("kafka.bootstrap.servers",)
"""The options that are accepted, but without effect: every query of a broker has them."""

_WITHOUT_BROKER = {
    "kafka.isolation.level": "use the option isolation",
    "groupidprefix": "a query without a broker has no consumer group: leave it out",
    # Spark adds this for CREATE TABLE, whose options it does not pass on as they were written.
    "provider": "a table can't keep these options; use CREATE TEMP VIEW ... USING strandline",
    "path": "give strandline.store or strandline.url, and subscribe",
}
_DELAY = re.compile(r"(\d{1,12})\s*(us|ms|s|m|min|h|d)?")
_DELAY_MS = {
    "us": 0.001,
    "ms": 1,
    None: 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


@dataclass(frozen=True, slots=True)
class Subscription:
    """The partitions to read, by exactly one of the fields. `assign`: topic -> its partitions."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assign: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The parsed options of a query. `starting` None: earliest for a batch, latest for a stream.

    `no_match_is_latest`: a starting time after every record means the end instead of an error.
    `given`: the names of given options, for refusals that depend on batch or stream.
    """

    subscription: Subscription
    starting: OffsetLimit | None
    ending: OffsetLimit
    no_match_is_latest: bool
    fail_on_data_loss: bool
    columns: tuple[str, ...]
    isolation: Isolation
    min_partitions: int | None
    max_records_per_partition: int | None
    max_batch_bytes: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    aiven_keys: tuple[str, ...]
    given: frozenset[str]

    def read_settings(self) -> ReadSettings:
        """The settings with which tasks read."""
        return ReadSettings(
            columns=self.columns,
            isolation=self.isolation,
            fail_on_data_loss=self.fail_on_data_loss,
            aiven_keys=self.aiven_keys,
            batch_bytes_max=self.max_batch_bytes,
        )

    def batch_start(self) -> OffsetLimit:
        """The start of a batch; InvalidRequest for `latest`, which would always be empty."""
        starting = EARLIEST if self.starting is None else self.starting
        if starting is LATEST:
            raise InvalidRequest(
                "can't be latest for a batch query, which would then be empty: give an earlier "
                "start",
                field="startingOffsets",
            )
        if isinstance(starting, SpecificOffsets):
            starting.refuse(LATEST.offset, "can't be -1 (latest)", option="startingOffsets")
        return starting

    def batch_end(self) -> OffsetLimit:
        """The end of a batch, exclusive; InvalidRequest for `earliest`."""
        if self.ending is EARLIEST:
            raise InvalidRequest(
                "can't be earliest for a batch query, which would then be empty: give a later end",
                field="endingOffsets",
            )
        if isinstance(self.ending, SpecificOffsets):
            self.ending.refuse(EARLIEST.offset, "can't be -2 (earliest)", option="endingOffsets")
        return self.ending

    def ignored_in_batch(self) -> tuple[str, ...]:
        """Given options that only a stream uses; a batch warns of them, as spark-sql-kafka does."""
        return tuple(name for name in _PER_TRIGGER if name in self.given)

    def stream_start(self) -> OffsetLimit:
        """The start of a stream without a checkpoint."""
        return LATEST if self.starting is None else self.starting

    def check_stream(self, *, admission_control: bool) -> None:
        """Raise InvalidRequest for options without effect in a stream: an end; limits on an old
        Spark.
        """
        for name in _ENDING:
            if name in self.given:
                raise InvalidRequest("a stream has no end: leave it out", field=name)
        if not admission_control:
            for name in _PER_TRIGGER:
                if name in self.given:
                    raise InvalidRequest("needs Spark 4.2 or newer: leave it out", field=name)


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Parse all options of a query; InvalidRequest names the one that is wrong."""
    names = {name.lower(): name for name in OPTIONS}
    found: dict[str, str] = {}
    for key, value in options.items():
        name = names.get(key.lower())
        if name is not None:
            found[name] = value.strip()
        elif not _elsewhere(key.lower()):
            raise _unknown(key)
    _refuse_pushdown(found)
    lowest = _positive(found, "minOffsetsPerTrigger")
    highest = _positive(found, "maxOffsetsPerTrigger")
    if lowest is not None and highest is not None and lowest > highest:
        raise InvalidRequest(
            f"{lowest} is above maxOffsetsPerTrigger ({highest})", field="minOffsetsPerTrigger"
        )
    return SourceOptions(
        subscription=_subscription(found),
        starting=_limit(found, "starting"),
        ending=_limit(found, "ending") or LATEST,
        no_match_is_latest=_one_of(found, "startingOffsetsByTimestampStrategy", ("error", "latest"))
        == "latest",
        fail_on_data_loss=_boolean(found, "failOnDataLoss", default=True),
        columns=_columns(found),
        isolation=_isolation(found),
        min_partitions=_positive(found, "minPartitions"),
        max_records_per_partition=_positive(found, "maxRecordsPerPartition"),
        max_batch_bytes=_batch_bytes(found),
        max_offsets_per_trigger=highest,
        min_offsets_per_trigger=lowest,
        max_trigger_delay_ms=_delay_ms(found),
        aiven_keys=aiven_keys_in(options),
        given=frozenset(found),
    )


def _elsewhere(key: str) -> bool:
    """True for an option about the location of the data, which the catalogue reads."""
    known = (*_IGNORED, *NODE_OPTIONS, AIVEN_KEYS_OPTION)
    return key in known or is_store_option(key)


def _unknown(key: str) -> InvalidRequest:
    low = key.lower()
    if low in _WITHOUT_BROKER:
        return InvalidRequest(_WITHOUT_BROKER[low], field=key)
    if low.startswith(("kafka.", "kafkaconsumer.", "fetchoffset.", "consumercache.")):
        return InvalidRequest("has no effect without a broker: leave it out", field=key)
    return InvalidRequest(
        f"is not an option of this data source; known are {', '.join(OPTIONS)}, strandline.url, "
        "strandline.store and the options of these two",
        field=key,
    )


def _refuse_pushdown(found: Mapping[str, str]) -> None:
    """Raise InvalidRequest for filters by Spark, which keeps the plan of a frame's first query for
    all later ones, whatever their filters, and for the other side of a join of the frame to itself.
    """
    if _boolean(found, "filterPushdown", default=False):
        raise InvalidRequest(
            "Spark up to 4.3 applies the filters of a frame's first query to all its later "
            "queries, which would lack rows: leave it out, and bound the frame by "
            "assign, startingOffsets, startingTimestamp, endingOffsets or endingTimestamp",
            field="filterPushdown",
        )


def _subscription(found: Mapping[str, str]) -> Subscription:
    given = [name for name in _STRATEGIES if name in found]
    if len(given) != 1:
        raise InvalidRequest(
            f"give exactly one of {', '.join(_STRATEGIES)}"
            + (f", not {' and '.join(given)}" if given else ""),
            field=given[0] if given else "subscribe",
        )
    name, value = given[0], found[given[0]]
    if name == "assign":
        return Subscription(assign=parse_assignment(value, option=name))
    if name == "subscribe":
        topics = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
        if not topics:
            raise InvalidRequest("names no topic", field=name)
        return Subscription(topics=topics)
    return Subscription(pattern=checked_pattern(value, option=name))


def checked_pattern(text: str, *, option: str) -> str:
    """`text`, a pattern of topic names; InvalidRequest if it is not one."""
    try:
        re.compile(text)
    except re.error as error:
        raise InvalidRequest(
            f"{text!r} is not a regular expression: {error}", field=option
        ) from None
    if not text:
        raise InvalidRequest("is empty", field=option)
    return text


def _limit(found: Mapping[str, str], which: Literal["starting", "ending"]) -> OffsetLimit | None:
    """The limit given: one timestamp wins over timestamps by partition, these over offsets."""
    name = f"{which}Timestamp"
    if name in found:
        return AtTimestamp(_whole(found[name], name, minimum=0, maximum=INT64_MAX))
    name = f"{which}OffsetsByTimestamp"
    if name in found:
        return SpecificTimestamps(parse_timestamps(found[name], option=name))
    name = f"{which}Offsets"
    if name not in found:
        return None
    named = {"earliest": EARLIEST, "latest": LATEST}.get(found[name].lower())
    if named is not None:
        return named
    return SpecificOffsets(parse_offsets(found[name], option=name))


def _whole(value: str, name: str, *, minimum: int, maximum: int) -> int:
    digits = value.isascii() and value.isdigit() and len(value) <= 19
    if not digits or not minimum <= int(value) <= maximum:
        raise InvalidRequest(
            f"must be a whole number from {minimum} to {maximum}, not {value[:40]!r}", field=name
        )
    return int(value)


def _positive(found: Mapping[str, str], name: str) -> int | None:
    return _whole(found[name], name, minimum=1, maximum=INT64_MAX) if name in found else None


def _batch_bytes(found: Mapping[str, str]) -> int | None:
    name = "maxBatchBytes"
    if name not in found:
        return None
    return _whole(found[name], name, minimum=1, maximum=BATCH_BYTES_MAX)


def _boolean(found: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = found.get(name, str(default)).lower()
    if value not in ("true", "false"):
        raise InvalidRequest(f"must be true or false, not {value!r}", field=name)
    return value == "true"


def _one_of(found: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    value = found.get(name, allowed[0]).lower()
    if value not in allowed:
        raise InvalidRequest(f"must be {' or '.join(allowed)}, not {value!r}", field=name)
    return value


def _isolation(found: Mapping[str, str]) -> Isolation:
    allowed = (Isolation.READ_COMMITTED.value, Isolation.READ_UNCOMMITTED.value)
    return Isolation(_one_of(found, "isolation", allowed))


def _columns(found: Mapping[str, str]) -> tuple[str, ...]:
    """The columns in the order of the schema, not in the order of the option."""
    every = (*COLUMNS, HEADERS)
    with_headers = _boolean(found, "includeHeaders", default=False)
    if "columns" not in found:
        return every if with_headers else COLUMNS
    by_name = {name.lower(): name for name in every}
    wanted = set()
    for part in found["columns"].split(","):
        name = by_name.get(part.strip().lower())
        if name is None:
            raise InvalidRequest(
                f"no column is named {part.strip()!r}; choose from {', '.join(every)}",
                field="columns",
            )
        wanted.add(name)
    return tuple(name for name in every if name in wanted)


def _delay_ms(found: Mapping[str, str]) -> int:
    value = found.get("maxTriggerDelay")
    if value is None:
        return MAX_TRIGGER_DELAY_DEFAULT_MS
    match = _DELAY.fullmatch(value.lower())
    if match is None:
        raise InvalidRequest(
            f"{value!r} is not a duration: write 30s, 15m or 1h", field="maxTriggerDelay"
        )
    return int(int(match[1]) * _DELAY_MS[match[2]])

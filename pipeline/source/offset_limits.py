"""The start and end of a query as its options give them: names, offsets or times. Pure.

Source: Spark's KafkaOffsetRangeLimit and JsonUtils.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from kafka_formats.errors import InvalidRequest
from kafka_formats.log_names import check_topic_name
from rlmm.segment import OFFSET_MAX

PARTITION_MAX = 2**31 - 1
TIMESTAMP_MAX_MS = 2**63 - 1

TopicPartitions = Mapping[str, tuple[int, ...]]
ByPartition = Mapping[tuple[str, int], int]
"""(topic, partition) -> an offset, or a time in milliseconds."""


@dataclass(frozen=True, slots=True)
class NamedOffset:
    """`earliest` or `latest`; `offset` is its number in JSON."""

    name: str
    offset: int


EARLIEST = NamedOffset("earliest", -2)
LATEST = NamedOffset("latest", -1)


@dataclass(frozen=True, slots=True)
class SpecificOffsets:
    """An offset for every partition of the query; -2 is its earliest, -1 its latest."""

    offsets: ByPartition

    def refuse(self, offset: int, why: str, *, option: str) -> None:
        """Raise InvalidRequest that names the partition which has this offset."""
        for (topic, partition), found in self.offsets.items():
            if found == offset:
                raise InvalidRequest(f"{topic}-{partition} {why} in a batch query", field=option)


@dataclass(frozen=True, slots=True)
class SpecificTimestamps:
    """A time for every partition of the query, in milliseconds since the epoch."""

    timestamps_ms: ByPartition


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """One time for every partition, in milliseconds since the epoch."""

    timestamp_ms: int


OffsetLimit = NamedOffset | SpecificOffsets | SpecificTimestamps | AtTimestamp


def parse_offsets(text: str, *, option: str) -> ByPartition:
    """Parses `{"orders": {"0": 23, "1": -2}}`."""
    return _by_partition(text, option, minimum=EARLIEST.offset, maximum=OFFSET_MAX)


def parse_timestamps(text: str, *, option: str) -> ByPartition:
    """Parses `{"orders": {"0": 1760000000000}}`."""
    return _by_partition(text, option, minimum=0, maximum=TIMESTAMP_MAX_MS)


def parse_assignment(text: str, *, option: str) -> TopicPartitions:
    """Parses `{"orders": [0, 1], "payments": [3]}`."""
    found: dict[str, tuple[int, ...]] = {}
    for topic, partitions in _topics(text, option).items():
        if not isinstance(partitions, list) or not partitions:
            raise InvalidRequest(
                f"{topic}: needs a list of partitions, such as [0, 1]", field=option
            )
        numbers = {_number(value, 0, PARTITION_MAX, topic, option) for value in partitions}
        found[topic] = tuple(sorted(numbers))
    return found


def _by_partition(text: str, option: str, *, minimum: int, maximum: int) -> ByPartition:
    found = {}
    for topic, partitions in _topics(text, option).items():
        if not isinstance(partitions, tuple) or not partitions:
            raise InvalidRequest(
                f'{topic}: needs its partitions, such as {{"{topic}": {{"0": 23}}}}', field=option
            )
        for name, value in partitions:
            if not re.fullmatch("[0-9]{1,10}", name) or int(name) > PARTITION_MAX:
                raise InvalidRequest(f"{topic}: {name!r} is not a partition number", field=option)
            place = f"{topic}-{int(name)}"
            if (topic, int(name)) in found:
                raise InvalidRequest(f"{place} is named twice: name it once", field=option)
            found[topic, int(name)] = _number(value, minimum, maximum, place, option)
    return found


def _topics(text: str, option: str) -> dict[str, object]:
    """The value of each topic. Objects in it become tuples of (name, value) pairs, since a dict
    would keep only the last pair of a repeated name.
    """
    try:
        pairs = json.loads(text, object_pairs_hook=tuple)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(
            f"{text[:80]!r} is neither earliest nor latest nor JSON by topic ({error})"
            if option.endswith("Offsets")
            else f"{text[:80]!r} is not JSON by topic ({error})",
            field=option,
        ) from None
    if not isinstance(pairs, tuple) or not pairs:
        raise InvalidRequest(f"{text[:80]!r} is not a JSON object by topic", field=option)
    found: dict[str, object] = {}
    for topic, value in pairs:
        if topic in found:
            raise InvalidRequest(
                f"{topic} is named twice: name all its partitions at once", field=option
            )
        found[topic] = value
        try:
            check_topic_name(topic)
        except InvalidRequest as error:
            raise InvalidRequest(str(error), field=option) from None
    return found


def _number(value: object, minimum: int, maximum: int, place: str, option: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise InvalidRequest(
            f"{place}: must be a whole number of at least {minimum}, not {value!r}", field=option
        )
    return value

"""The content of a tier by topic and age, its price, and the projected price. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pipeline.usage.prices import Prices

DAY_MS = 86_400_000
MONTH_DAYS = 30
AGES: tuple[tuple[str, int | None], ...] = (
    ("under a day", 1),
    ("1 to 7 days", 7),
    ("7 to 30 days", 30),
    ("30 to 90 days", 90),
    ("90 days to a year", 365),
    ("over a year", None),
)
"""Name and upper limit in days (exclusive). Age is the time since the object was written."""

PROJECTED_MONTHS = (0, 1, 3, 6, 12)
OTHER = "(no segments)"
"""Topic of objects that do not belong to a segment: marker, snapshots, foreign ones."""

READ_BYTES = 4 * 2**20
"""Bytes of one GET, to turn an estimate of a month's reads in bytes into requests."""

PART_BYTES = 12 * 2**20
"""Size of an upload's part on a node (`copier.part_bytes`): a larger object takes one request for
each part, and two more.
"""


@dataclass(frozen=True, slots=True)
class Holding:
    """Objects of a topic in one age class. `puts` counts the requests that wrote them."""

    topic: str
    age: int
    objects: int
    segments: int
    size_bytes: int
    puts: int


@dataclass(frozen=True, slots=True)
class TopicUsage:
    """The usage of one topic. `recent_bytes` and `recent_puts`: written within the last 30 days. By
    age, in the order of `AGES`: bytes and objects, the requests that wrote them, and their part of
    `price`.
    """

    topic: str
    objects: int
    segments: int
    size_bytes: int
    bytes_by_age: tuple[int, ...]
    objects_by_age: tuple[int, ...]
    puts_by_age: tuple[int, ...]
    price_by_age: tuple[float, ...]
    recent_bytes: int
    recent_puts: int
    storage_price: float
    put_price: float

    @property
    def price(self) -> float:
        """The price of a month like the last one."""
        return self.storage_price + self.put_price


@dataclass(frozen=True, slots=True)
class Projection:
    """The month `months` from now, if as much is written as in the last 30 days and nothing
    expires.
    """

    months: int
    size_bytes: int
    storage_price: float
    put_price: float
    read_price: float

    @property
    def price(self) -> float:
        """The whole price."""
        return self.storage_price + self.put_price + self.read_price


def topic_usages(holdings: Iterable[Holding], prices: Prices) -> list[TopicUsage]:
    """Topics by size, the largest first."""
    by_topic: dict[str, list[Holding]] = {}
    for each in holdings:
        by_topic.setdefault(each.topic, []).append(each)
    usages = [_usage(topic, found, prices) for topic, found in by_topic.items()]
    return sorted(usages, key=lambda each: (-each.size_bytes, each.topic))


def _usage(topic: str, holdings: Sequence[Holding], prices: Prices) -> TopicUsage:
    sizes, objects, puts = [0] * len(AGES), [0] * len(AGES), [0] * len(AGES)
    for each in holdings:
        sizes[each.age] += each.size_bytes
        objects[each.age] += each.objects
        puts[each.age] += each.puts
    recent_puts = [count if _is_recent(age) else 0 for age, count in enumerate(puts)]
    return TopicUsage(
        topic,
        sum(objects),
        sum(each.segments for each in holdings),
        sum(sizes),
        tuple(sizes),
        tuple(objects),
        tuple(puts),
        tuple(
            prices.storage(size) + prices.puts(count)
            for size, count in zip(sizes, recent_puts, strict=True)
        ),
        sum(size for age, size in enumerate(sizes) if _is_recent(age)),
        sum(recent_puts),
        prices.storage(sum(sizes)),
        prices.puts(sum(recent_puts)),
    )


def _is_recent(age: int) -> bool:
    days = AGES[age][1]
    return days is not None and days <= MONTH_DAYS


def projections(
    usages: Sequence[TopicUsage], prices: Prices, *, read_bytes: int = 0, read_requests: int = 0
) -> list[Projection]:
    """Projections for some topics. `read_bytes` and `read_requests` of a month are the operator's
    estimate for the whole tier: a bucket does not show which topic is read.
    """
    size = sum(each.size_bytes for each in usages)
    added = sum(each.recent_bytes for each in usages)
    puts = sum(each.recent_puts for each in usages)
    return [
        Projection(
            months,
            size + months * added,
            prices.storage(size + months * added),
            prices.puts(puts),
            prices.reads(read_requests, read_bytes),
        )
        for months in PROJECTED_MONTHS
    ]


def human_bytes(count: float) -> str:
    """A number of bytes as text, for tables and axes."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} PiB"

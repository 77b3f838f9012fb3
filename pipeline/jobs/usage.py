"""`strandline pipeline usage`: the content of the tier by topic and age, and its cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from kafka_formats.errors import InvalidRequest, NotFound
from pipeline.jobs.frame_errors import our_errors
from pipeline.jobs.job import JobContext
from pipeline.jobs.kept_frames import kept_frames
from pipeline.listing.listed_objects import listed_objects
from pipeline.usage.page import usage_page
from pipeline.usage.prices import Prices
from pipeline.usage.tier_usage import (
    AGES,
    DAY_MS,
    OTHER,
    PART_BYTES,
    Holding,
    Projection,
    TopicUsage,
    human_bytes,
    projections,
    topic_usages,
)

TOPICS_PRINTED_MAX = 20
EPOCH = date(1970, 1, 1)
DAYS_MAX = 20_000


@dataclass(frozen=True)
class UsageOptions:
    """Options of a report. `folder` None: no pictures and no page. Reads a month are the operator's
    estimate.
    """

    prices: Prices
    folder: Path | None
    read_bytes: int
    read_requests: int
    now_ms: int


@dataclass(frozen=True)
class UsageReport:
    """The report, with topics by size; `files` are the written ones."""

    usages: Sequence[TopicUsage]
    projected: Sequence[Projection]
    prices: Prices
    files: Sequence[str]

    @property
    def ok(self) -> bool:
        """True always: counting finds no faults."""
        return True

    def as_json(self) -> dict[str, object]:
        """The report for scripts."""
        return {
            "ok": True,
            "ages": [name for name, _ in AGES],
            "topics": [
                asdict(each)
                | {
                    "price": each.price,
                    "projection": _projection_json(projections([each], self.prices)),
                }
                for each in self.usages
            ],
            "projection": _projection_json(self.projected),
            "prices": asdict(self.prices),
            "files": list(self.files),
        }

    def lines(self) -> Iterable[str]:
        """The report for people."""
        now, year = self.projected[0], self.projected[-1]
        money = self.prices.currency
        for each in self.usages[:TOPICS_PRINTED_MAX]:
            yield (
                f"{human_bytes(each.size_bytes):>11}  {each.segments:>8,} segments  "
                f"{each.price:>10,.2f} {money} a month  {each.topic}"
            )
        if len(self.usages) > TOPICS_PRINTED_MAX:
            yield f"and {len(self.usages) - TOPICS_PRINTED_MAX} smaller topics"
        yield (
            f"{human_bytes(now.size_bytes)} in all: {now.price:,.2f} {money} for a month like the "
            f"last one; {year.price:,.2f} in {year.months} months, if as much is written as in the "
            "last 30 days and nothing expires"
        )
        yield f"prices: {self.prices.source}, as of {self.prices.as_of}"
        yield from (f"written: {each}" for each in self.files)


def _projection_json(projected: Iterable[Projection]) -> list[dict[str, object]]:
    return [asdict(each) | {"price": each.price} for each in projected]


def run(context: JobContext, options: UsageOptions) -> UsageReport:
    """Report. NotFound if the bucket is empty. InvalidRequest if the folder is not writable."""
    listing = context.bar("listing the bucket")
    with our_errors(), kept_frames() as keep, listing:
        objects = keep(listed_objects(context.spark, context.catalogue.stores))
        holdings = _holdings(objects, options.now_ms)
        days = _days(objects)
    if not holdings:
        raise NotFound("the bucket has no object under this prefix: correct bucket and prefix")
    usages = topic_usages(holdings, options.prices)
    projected = projections(
        usages,
        options.prices,
        read_bytes=options.read_bytes,
        read_requests=options.read_requests,
    )
    files: list[str] = []
    if options.folder is not None:
        where = ", ".join(
            f"{each.bucket or each.path}/{each.prefix}"
            for each in context.catalogue.stores.values()
        )
        with context.console.status("drawing"):
            files = _write(options, usages, projected, days, where)
    return UsageReport(usages, projected, options.prices, files)


def _holdings(objects: DataFrame, now_ms: int) -> list[Holding]:
    size, puts = f.col("size"), _puts(f.col("size"))
    grouped = objects.select(
        f.coalesce("topic", f.lit(OTHER)).alias("topic"),
        _age(f.lit(now_ms) - f.col("modified_ms")).alias("age"),
        size,
        puts.alias("puts"),
        (f.col("suffix") == "log").alias("is_log"),
    ).groupBy("topic", "age")
    counted = grouped.agg(
        f.count("*").alias("objects"),
        f.count_if("is_log").alias("segments"),
        f.sum("size").alias("size"),
        f.sum("puts").alias("puts"),
    )
    return [
        Holding(row["topic"], row["age"], row["objects"], row["segments"], row["size"], row["puts"])
        for row in counted.collect()
    ]


def _age(lived_ms: Column) -> Column:
    """The number of the age class; the last one if the store does not give the time."""
    found = f.lit(len(AGES) - 1)
    for number, (_, days) in reversed(list(enumerate(AGES[:-1]))):
        assert days is not None
        found = f.when(lived_ms < days * DAY_MS, number).otherwise(found)
    return f.when(f.col("modified_ms") < 0, len(AGES) - 1).otherwise(found)


def _puts(size: Column) -> Column:
    """Number of requests that wrote an object of this size."""
    parts = f.ceil(size / PART_BYTES) + 2
    return f.when(size <= PART_BYTES, f.lit(1)).otherwise(parts).cast("bigint")


def _days(objects: DataFrame) -> list[tuple[date, int]]:
    known = objects.where("modified_ms >= 0")
    days = known.groupBy((f.floor(f.col("modified_ms") / DAY_MS)).alias("day"))
    # Sorted here: Spark would read a sample first, and shuffle again.
    found = sorted(map(tuple, days.agg(f.sum("size")).collect()))
    return [(EPOCH + timedelta(days=day), size) for day, size in found[-DAYS_MAX:]]


def _write(
    options: UsageOptions,
    usages: Sequence[TopicUsage],
    projected: Sequence[Projection],
    days: Sequence[tuple[date, int]],
    where: str,
) -> list[str]:
    # Imported here, since it takes longer than all other imports of a run without pictures.
    from pipeline.usage.pictures import growth_picture, price_picture, topics_picture

    folder = options.folder
    assert folder is not None
    pictures = {
        "usage-topics.png": topics_picture(usages),
        "usage-price.png": price_picture(projected, options.prices.currency),
    }
    if days:
        pictures["usage-written.png"] = growth_picture(days)
    made_at = datetime.fromtimestamp(options.now_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    page = usage_page(usages, projected, options.prices, pictures, made_at=made_at, where=where)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in {**pictures, "usage.html": page.encode()}.items():
            (folder / name).write_bytes(data)
    except OSError as error:
        raise InvalidRequest(
            f"{folder} can't be written: {error.strerror}", field="--output"
        ) from None
    return [str(folder / name) for name in (*pictures, "usage.html")]

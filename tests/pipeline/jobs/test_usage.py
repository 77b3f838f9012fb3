"""What a tier holds and costs: counted by Spark, drawn, and told on one page."""

from __future__ import annotations

import json
import os
from datetime import date
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from kafka_formats.errors import InvalidRequest, NotFound
from pipeline.catalogue.open_catalogue import open_catalogue
from pipeline.jobs.job import JobContext
from pipeline.jobs.usage import UsageOptions, UsageReport, run
from pipeline.usage.page import usage_page
from pipeline.usage.pictures import growth_picture, price_picture, topics_picture
from pipeline.usage.prices import DEFAULT_PRICES, GIB, Prices, changed, parse_prices
from pipeline.usage.tier_usage import (
    AGES,
    DAY_MS,
    OTHER,
    PART_BYTES,
    Holding,
    projections,
    topic_usages,
)

NOW_MS = 1_800_000_000_000
PNG = b"\x89PNG\r\n"
PRICES = parse_prices(DEFAULT_PRICES, source="defaults")


def test_the_default_table_says_where_it_comes_from_and_that_it_is_to_be_checked() -> None:
    assert "to be checked" in PRICES.source
    assert PRICES.as_of
    assert PRICES.storage(GIB) == PRICES.storage_gib_month > 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("= 3", "is not TOML"),
        (DEFAULT_PRICES + "\nput_100 = 1", "'put_100' is unknown"),
        (DEFAULT_PRICES.replace("get_1000", "# "), "'get_1000' is missing"),
        (DEFAULT_PRICES.replace("0.005 ", "-1 "), "0 or more"),
        (DEFAULT_PRICES.replace('"USD"', "7"), "must be text"),
        (DEFAULT_PRICES.replace("0.005 ", "nan "), "0 or more"),
    ],
)
def test_a_price_table_with_a_mistake_is_refused_by_its_field(text: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        parse_prices(text, source="prices.toml")


def test_single_prices_are_changed_and_the_source_says_so() -> None:
    cheap = changed(PRICES, {"storage_gib_month": "0.01"})
    assert (cheap.storage_gib_month, cheap.put_1000) == (0.01, PRICES.put_1000)
    assert cheap.source.endswith("with changes")
    for wrong in ({"storage": "1"}, {"put_1000": "a lot"}, {"put_1000": "-1"}):
        with pytest.raises(InvalidRequest):
            changed(PRICES, wrong)


def test_a_month_costs_what_is_kept_and_what_was_written_in_the_last_one() -> None:
    plain = Prices("s", "d", "EUR", 1.0, 10.0, 100.0, 1000.0)
    usages = topic_usages(
        [
            Holding("a", 0, 3, 1, GIB, 2_000),
            Holding("a", 5, 3, 1, 4 * GIB, 9_000),
            Holding("b", 2, 3, 1, 7 * GIB, 1_000),
        ],
        plain,
    )
    assert [each.topic for each in usages] == ["b", "a"]
    assert [each.price for each in usages] == [7 + 10, 5 + 20]
    now, month, *_ = projections(usages, plain, read_bytes=GIB, read_requests=1_000)
    assert (now.size_bytes, now.price) == (12 * GIB, 12 + 30 + 1_100)
    assert (month.size_bytes, month.storage_price) == (20 * GIB, 20)


def test_each_topic_is_told_by_age_and_projected_by_itself() -> None:
    plain = Prices("s", "d", "EUR", 1.0, 10.0, 100.0, 1000.0)
    holdings = [Holding("a", 0, 3, 1, GIB, 2_000), Holding("a", 5, 6, 2, 4 * GIB, 9_000)]
    other = Holding("b", 2, 3, 1, 7 * GIB, 1_000)
    report = UsageReport(topic_usages([*holdings, other], plain), (), plain, ())
    told = json.loads(json.dumps(report.as_json()))
    ages = told["ages"]
    found = {each["topic"]: each for each in told["topics"]}
    assert len(ages) == 6
    assert found["a"]["objects_by_age"] == [3, 0, 0, 0, 0, 6]
    assert found["a"]["puts_by_age"] == [2_000, 0, 0, 0, 0, 9_000]
    # What was written before the last month is paid for: a month like it costs the storage alone.
    assert found["a"]["price_by_age"] == [1 + 20, 0, 0, 0, 0, 4]
    assert sum(found["a"]["price_by_age"]) == found["a"]["price"]
    later = {each["months"]: (each["size_bytes"], each["price"]) for each in
             found["a"]["projection"]}  # fmt: skip
    assert later[0] == (5 * GIB, found["a"]["price"])
    assert later[12] == (17 * GIB, 17 + 20)
    assert [each["months"] for each in found["b"]["projection"]] == list(later)


class Page(HTMLParser):
    """Collects what a browser would load, and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.sources: list[str] = []
        self.tags: set[str] = set()
        self.text = ""
        self.rows: dict[str, list[list[str]]] = {}
        self._tag = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self._tag = tag
        if tag == "tr":
            self.rows[list(self.rows)[-1]].append([])
        if tag in ("th", "td"):
            self.rows[list(self.rows)[-1]][-1].append("")
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._tag == "h2":
            self.rows[data] = []
        elif self._tag in ("th", "td"):
            self.rows[list(self.rows)[-1]][-1][-1] += data


def test_the_page_loads_nothing_and_shows_names_as_they_are() -> None:
    usages = topic_usages([Holding("<script>alert(1)</script>", 0, 3, 1, 10, 1)], PRICES)
    projected = projections(usages, PRICES, read_bytes=0, read_requests=0)
    page = Page()
    page.feed(usage_page(usages, projected, PRICES, {"a": PNG}, made_at="now", where="s3://b/<i>/"))
    assert page.rows["By topic"][1][1:5] == ["10 B", "3", "1", "1"]
    assert page.rows["By age"][1] == ["under a day", "10 B", "3", "1", "0.00"]
    assert len(page.rows["By age"]) == 1 + len(AGES)
    assert "script" not in page.tags
    assert "<script>alert(1)</script>" in page.text
    assert "s3://b/<i>/" in page.text
    assert all(each.startswith("data:image/png;base64,") for each in page.sources)


def test_pictures_are_drawn_of_nothing_much_and_of_odd_names() -> None:
    odd = ["$x$_{", "a" * 249, "a" * 248 + "b", "_hidden", OTHER]
    usages = topic_usages([Holding(name, 5, 1, 0, 0, 1) for name in odd], PRICES)
    free = changed(PRICES, {"storage_gib_month": "0", "put_1000": "0"})
    projected = projections(usages, free, read_bytes=0, read_requests=0)
    for picture in (
        topics_picture(usages),
        price_picture(projected, "$"),
        growth_picture([(date(2026, 11, 22), 0)]),
    ):
        assert picture.startswith(PNG)


def usage(
    spark: SparkSession, tier: Path, folder: Path | None, screen: StringIO | None = None
) -> UsageReport:
    """`screen` None: no terminal."""
    store = {"strandline.store": tier.as_uri()}
    console = Console(
        file=StringIO() if screen is None else screen, force_terminal=screen is not None, width=100
    )
    context = JobContext(spark, store, open_catalogue(store, {}), console)
    return run(context, UsageOptions(PRICES, folder, 0, 0, NOW_MS))


@pytest.mark.spark
def test_objects_are_counted_by_topic_and_age(spark: SparkSession, tmp_path: Path) -> None:
    tier = tmp_path / "tier"
    sizes = {"log": PART_BYTES + 1, "indexes": 200, "rsm-manifest": 30}
    for number, (topic, days) in enumerate((("orders", 0), ("orders", 400), ("payments", 20))):
        folder = tier / f"{topic}-{'A' * 21}Q" / "0"
        folder.mkdir(parents=True, exist_ok=True)
        for suffix, size in sizes.items():
            path = folder / f"{number:020}-{'B' * 20}{number}Q.{suffix}"
            with path.open("wb") as file:
                file.truncate(size)
            written_s = (NOW_MS - days * DAY_MS - 1) / 1000
            os.utime(path, (written_s, written_s))
    (tier / "notes.txt").write_bytes(b"12345")
    screen = StringIO()
    report = usage(spark, tier, tmp_path / "out", screen)
    assert "listing the bucket" in screen.getvalue()
    found = {each.topic: each for each in report.usages}
    one = sum(sizes.values())
    assert found["orders"].bytes_by_age == (one, 0, 0, 0, 0, one)
    assert (found["orders"].segments, found["orders"].objects) == (2, 6)
    assert found["orders"].recent_puts == 4 + 1 + 1
    assert found["payments"].bytes_by_age == (0, 0, one, 0, 0, 0)
    assert (found[OTHER].segments, found[OTHER].size_bytes) == (0, 5)
    assert len(report.files) == 4
    assert all(Path(each).stat().st_size > 1_000 for each in report.files)
    json.dumps(report.as_json())
    assert "in all" in "\n".join(report.lines())


@pytest.mark.spark
def test_an_empty_bucket_is_a_wrong_address(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "tier").mkdir()
    with pytest.raises(NotFound, match="correct bucket and prefix"):
        usage(spark, tmp_path / "tier", None)

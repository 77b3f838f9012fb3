"""The page of /ui at three real nodes that know ten thousand partitions."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from bench.idle_log_dir import write_log_dir
from bench.metadata_set import KAFKA_CLUSTER_ID, MetadataSet
from tests.e2e.browser import PHONE, Tab, browser
from tests.e2e.http import PLAIN
from tests.e2e.node_quorum import COPIER_ID, NodeQuorum
from tests.e2e.stocked_quorum import StockedQuorum

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

PARTITIONS, STOCKED, BEHIND = 10_000, 500, 100
SURVEY_MS = 60_000
"""Facts about all partitions are gathered the less often the longer that takes."""
PAGE_ROWS = 50
ANSWER_BYTES_MAX = 150_000
ASKED = 2
ROWS = "table:has(caption:text-is('Partitions by topic and number')) tbody tr"


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeQuorum]:
    """A hundred partitions more wait on the first node's disk."""
    home = tmp_path_factory.mktemp("scale")
    (home / "store").mkdir()
    write_log_dir(home / "kafka", cluster_id=KAFKA_CLUSTER_ID, node_id=COPIER_ID, partitions=0)
    write_log_dir(
        home / "aside", cluster_id=KAFKA_CLUSTER_ID, node_id=COPIER_ID, partitions=BEHIND,
        segments=3,
    )  # fmt: skip
    sections: dict[str, dict[str, object]] = {
        "http": {"anonymous_role": "admin"},
        "topics": {"include": ["*"]},
        "stores.main": {"kind": "filesystem", "path": str(home / "store")},
        "hold": {"dirs": []},
    }
    quorum = StockedQuorum(
        home, sections, home / "kafka", store=home / "store",
        metadata_set=MetadataSet(PARTITIONS, 1), stocked=STOCKED,
    )  # fmt: skip
    with quorum as running:
        copying = f"{running.nodes[COPIER_ID].url}/v1/node/switches/copying"
        PLAIN.put(copying, json={"paused": True, "why": "the test"}).raise_for_status()
        for each in (home / "aside").iterdir():
            if each.is_dir():
                each.rename(home / "kafka" / each.name)
        known = f"{running.nodes[ASKED].url}/v1/cluster"
        running.wait_until(
            lambda: PLAIN.get(known).json()["totals"]["partitions"] == PARTITIONS + BEHIND,
            "a hundred more to be claimed",
        )
        yield running


def test_every_view_is_whole_at_ten_thousand_partitions(quorum: NodeQuorum) -> None:
    with browser() as opened:
        tab = Tab(opened, quorum.nodes[ASKED].url)
        _look_at_all(tab)
        phone = Tab(opened, quorum.nodes[ASKED].url, size=PHONE)
        for place, line in (("", "behind"), ("partitions", "benchmark-00000-0")):
            page = phone.open(place)
            expect(page.get_by_text(line, exact=place != "").first).to_be_visible()
            _fits(phone, f"phone-{place or 'overview'}")
        for each in (tab, phone):
            assert (each.foreign(), each.console) == ([], [])
            assert max(each.bytes.values()) < ANSWER_BYTES_MAX, each.bytes
            each.close()


def _look_at_all(tab: Tab) -> None:
    page = tab.open()
    expect(page.get_by_role("heading", level=2).first).to_contain_text("look at this")
    behind = page.get_by_text(f"{BEHIND} partitions of {BEHIND} behind")
    expect(behind).to_be_visible(timeout=SURVEY_MS)
    told = f"{STOCKED} segments of {PARTITIONS + BEHIND:,} partitions"
    expect(page.get_by_text(told)).to_be_visible()
    expect(page.get_by_role("table", name="Problems of the nodes")).to_contain_text("paused")
    _is_whole(tab, "overview")

    page = tab.open("partitions")
    rows = page.locator(ROWS)
    expect(rows).to_have_count(PAGE_ROWS)
    expect(rows.first).to_contain_text("benchmark-00000-0")
    page.get_by_role("button", name="Next").click()
    expect(rows.first).to_contain_text("benchmark-00000-50")
    expect(page.get_by_text("page 2")).to_be_visible()
    page.get_by_label("Part of the topic's name").fill("00099")
    page.get_by_role("button", name="Filter").click()
    expect(rows.first).to_contain_text("benchmark-00099-0")
    expect(rows).to_have_count(PAGE_ROWS)
    page.get_by_label("Which").select_option("behind")
    expect(page.get_by_text("No partition is like that.")).to_be_visible()
    page.get_by_label("Part of the topic's name").fill("")
    page.get_by_role("button", name="Filter").click()
    expect(rows.first).to_contain_text("idle-0")
    _is_whole(tab, "partitions")

    page = tab.open("partitions/benchmark-00004/7")
    expect(page.get_by_role("table", name="Segments that serve these offsets")).to_be_visible()
    expect(page.get_by_text("Would go", exact=True)).to_be_visible()
    buttons = page.get_by_role("button", name=re.compile("Repair|claim|trash"))
    expect(buttons.first).to_be_visible()
    _is_whole(tab, "partition")

    page = tab.open("trash")
    expect(page.get_by_text("The trash is empty.")).to_be_visible()
    _is_whole(tab, "trash")
    page = tab.open("audit")
    lines = page.get_by_role("table", name="Newest first, times by each node's clock")
    expect(lines).to_contain_text("the test")
    _is_whole(tab, "audit")


def _is_whole(tab: Tab, name: str) -> None:
    _fits(tab, name)
    assert tab.violations() == [], name


def _fits(tab: Tab, name: str) -> None:
    expect(tab.page.locator("[aria-busy=true]")).to_have_count(0)
    width = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    scrolled, shown = tab.page.evaluate(width)
    assert scrolled <= shown, name
    tab.picture(f"scale-{name}")

"""The page of /ui in a real browser, at three real nodes."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from kafka_formats.properties import parse_meta_properties
from tests.e2e.browser import Tab, browser
from tests.e2e.http import PLAIN
from tests.e2e.node_quorum import NodeQuorum
from tests.strandline.command import CAPTURED, CAPTURED_SEGMENTS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

TOKENS = {"night": "read", "operator": "operate", "chief": "admin"}
"""Names and roles; the token of each is its name."""
FOLLOWER = 2


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeQuorum]:
    home = tmp_path_factory.mktemp("page")
    (home / "store").mkdir()
    shutil.copytree(CAPTURED, home / "kafka")
    meta = home / "kafka" / "meta.properties"
    kafka_cluster_id = parse_meta_properties(meta.read_bytes(), source=str(meta)).cluster_id
    tokens = home / "tokens"
    lines = [f"{n} {role} {hashlib.sha256(n.encode()).hexdigest()}" for n, role in TOKENS.items()]
    tokens.write_text("\n".join(lines) + "\n")
    sections: dict[str, dict[str, object]] = {
        "http": {"anonymous_role": "read", "tokens_file": str(tokens)},
        "topics": {"include": ["*"]},
        "stores.main": {"kind": "filesystem", "path": str(home / "store")},
    }
    with NodeQuorum(home, str(kafka_cluster_id), sections, home / "kafka") as running:
        url = running.nodes[FOLLOWER].url
        running.wait_until(
            lambda: (
                PLAIN.get(f"{url}/v1/cluster").json()["totals"]["copy_segment_finished"]
                == CAPTURED_SEGMENTS
            ),
            "every segment to be copied",
        )
        yield running


@pytest.fixture(scope="module")
def opened() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture
def tab(quorum: NodeQuorum, opened: Browser) -> Iterator[Tab]:
    """At a node that copies nothing itself. Whatever the test does: nothing foreign is asked for,
    nothing is complained of.
    """
    found = Tab(opened, quorum.nodes[FOLLOWER].url)
    yield found
    assert (found.foreign(), found.console) == ([], [])
    found.close()


def test_the_overview_says_if_data_is_safe_and_goes_on_saying_it(
    quorum: NodeQuorum, tab: Tab
) -> None:
    page = tab.open()
    expect(page.get_by_role("status")).to_contain_text(f"live from node {FOLLOWER}")
    expect(page.get_by_role("heading", level=2).first).to_contain_text("safe")
    for node_id in (1, 2, 3):
        expect(page.get_by_text(f"node {node_id}: live")).to_be_visible()
    assert tab.violations() == []
    tab.picture("overview")
    before = page.locator("[data-live=high-watermark]").inner_text()
    paused = PLAIN.put(
        f"{quorum.nodes[1].url}/v1/settings/copying.paused",
        json={"scope": {"kind": "cluster"}, "value": True, "why": "the page is tested"},
        headers={"Authorization": "Bearer chief"},
    )
    assert paused.status_code == 200, paused.text
    expect(page.locator("[data-live=high-watermark]")).not_to_have_text(before)
    expect(page.get_by_role("table", name="Problems of the nodes")).to_contain_text("paused")
    expect(page.get_by_role("heading", level=2).first).to_contain_text("look at this")
    tab.picture("overview-paused")
    assert tab.violations() == []

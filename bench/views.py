"""Views of the whole cluster, of three whole nodes: time of one request, and of the first; the page
of `/ui` over them in Chromium: first paint, its requests, memory.

`python -m bench.views [PARTITIONS] [SEGMENTS] [REQUESTS]` (10,000; 1,000,000; 200 of each view).
SEGMENTS are tiered, in PARTITIONS partitions. Node 1 has a log directory of PARTITIONS more, each
with two sealed segments that wait, copying being paused; node 2 is asked, one request after the
other, over one connection. Nodes, client and browser share the cores.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from time import perf_counter

import httpx

from bench.idle_log_dir import TOPIC, write_log_dir
from bench.metadata_node import CACHE
from bench.metadata_set import KAFKA_CLUSTER_ID, MetadataSet
from bench.table import Measure, percentile, write_table
from tests.e2e.browser import Tab, browser, renderer_mib
from tests.e2e.node_quorum import COPIER_ID
from tests.e2e.stocked_quorum import StockedQuorum

ASKED = 2
VIEWS = ("lag", "sizes", "running", "problems", "audit", "partitions")
LOCAL_SEGMENTS = 3
P95_MAX_MS = 200.0
PLACES = (
    "",
    "partitions",
    f"partitions/{TOPIC}/0",
    "partitions/benchmark-00000/7",
    "quorum",
    "audit",
    "actions",
)
LOOKS = 10
PAINT_MAX_MS, MEMORY_MAX_MIB = 1_000.0, 200.0
SETTLED_DEADLINE_S = 600.0
_FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


def main() -> None:
    """Print the table."""
    given, defaults = sys.argv[1:], ("10000", "1000000", "200")
    partitions, segments, requests = (int(each) for each in (*given, *defaults[len(given) :]))
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as home:
        measures = _measured(Path(home), MetadataSet(partitions, segments // partitions), requests)
    write_table(
        "Views of the whole cluster",
        measures,
        packages=("uvloop",),
        notes=(
            f"{segments:,} tiered segments in {partitions:,} partitions, as many more that lag",
            "three nodes, pages of 100",
        ),
    )


def _measured(home: Path, tiered: MetadataSet, requests: int) -> list[Measure]:
    partitions = tiered.partitions
    log_dir, aside = home / "kafka", home / "aside"
    (home / "store").mkdir()
    write_log_dir(log_dir, cluster_id=KAFKA_CLUSTER_ID, node_id=COPIER_ID, partitions=0)
    write_log_dir(
        aside,
        cluster_id=KAFKA_CLUSTER_ID,
        node_id=COPIER_ID,
        partitions=partitions,
        segments=LOCAL_SEGMENTS,
    )
    sections: dict[str, dict[str, object]] = {
        "http": {"anonymous_role": "admin"},
        "topics": {"include": ["*"]},
        "stores.main": {"kind": "filesystem", "path": str(home / "store")},
        "hold": {"dirs": []},
    }
    stocked = StockedQuorum(
        home, sections, log_dir, store=home / "store", metadata_set=tiered, stocked=partitions
    )
    with stocked as quorum, httpx.Client() as client:
        pause = {"paused": True, "why": "the bench"}
        copier = quorum.nodes[COPIER_ID].url
        client.put(f"{copier}/v1/node/switches/copying", json=pause).raise_for_status()
        for each in aside.iterdir():
            if each.is_dir():
                each.rename(log_dir / each.name)
        begun = perf_counter()
        url = f"{quorum.nodes[ASKED].url}/v1/cluster"

        def is_settled() -> bool:
            found = client.get(f"{url}/lag", timeout=60).raise_for_status().json()
            known = client.get(f"{url}/sizes", timeout=60).raise_for_status().json()
            behind, claimed = found["total"]["behind"], known["tier"]["partitions"]
            return bool(behind == partitions and claimed == 2 * partitions)

        quorum.wait_until(is_settled, "every partition to lag", deadline_s=SETTLED_DEADLINE_S)
        measures = [Measure("all partitions claimed and seen", "s", [perf_counter() - begun])]
        for view in VIEWS:
            measures += _view(client, f"{url}/{view}", view, requests)
        return measures + _page(quorum.nodes[ASKED].url)


def _page(url: str) -> list[Measure]:
    """Each view several times in one tab; the first paint of a new tab each time."""
    with browser() as opened:
        paints, facts = [], []
        for _ in range(LOOKS):
            fresh = Tab(opened, url)
            fresh.open()
            fresh.page.wait_for_selector(".verdict")
            facts.append(fresh.page.evaluate("performance.now()"))
            paints.append(fresh.page.evaluate(_FIRST_PAINT))
            fresh.close()
        tab = Tab(opened, url)
        for _ in range(LOOKS):
            for place in PLACES:
                tab.open(place)
                tab.page.wait_for_selector("[aria-busy=true]", state="detached")
        heap = tab.page.evaluate("performance.memory.usedJSHeapSize") / 2**20
        memory = renderer_mib(opened)
        took = [ms for path, each in tab.took_ms.items() if path.startswith("/v1/") for ms in each]
        assert (tab.console, tab.foreign()) == ([], [])
    p95 = percentile(took, 95)
    return [
        Measure(
            "page: first paint", "ms", paints, f"< {PAINT_MAX_MS:g}", max(paints) < PAINT_MAX_MS
        ),
        Measure("page: until it says if data is safe", "ms", facts),
        Measure("page: p95 of a request", "ms", [p95], f"< {P95_MAX_MS:g}", p95 < P95_MAX_MS),
        Measure("page: heap of the tab", "MiB", [heap]),
        Measure(
            "page: memory of the tab's process", "MiB", [memory], f"< {MEMORY_MAX_MIB:g}",
            memory < MEMORY_MAX_MIB,
        ),
    ]  # fmt: skip


def _view(client: httpx.Client, url: str, view: str, requests: int) -> list[Measure]:
    took_ms = []
    for _ in range(requests):
        begun = perf_counter()
        answer = client.get(url, timeout=60).raise_for_status()
        took_ms.append((perf_counter() - begun) * 1e3)
        assert all(each["answered"] for each in answer.json()["nodes"]), answer.text[:500]
    p95 = percentile(took_ms, 95)
    return [
        Measure(f"{view}: one request", "ms", took_ms),
        Measure(f"{view}: p95", "ms", [p95], f"< {P95_MAX_MS:g}", p95 < P95_MAX_MS),
    ]


if __name__ == "__main__":
    main()

"""Time from a partition's new leader to the first segment copied by the node beside it.

`python -m bench.leader_move [--rounds N]`: three stock brokers with a node beside each and the
default settings, MinIO, a topic of three partitions that is written to all the time. A round waits
for a sealed segment that is not copied, lets another replica lead (preferred leader election), and
counts from the request to the controller until the first segment is finished under the new node's
claim. The time until that claim stands is the second line.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

from confluent_kafka import ElectionType

from bench.table import Measure, write_table
from tests.e2e.broker_site import Site, open_site
from tests.e2e.ledger import LogKey
from tests.real.kafka_cluster import BROKERS

TOPIC = "moved"
PARTITIONS = 3
POLL_S = 0.01
ROUND_DEADLINE_S = 60.0
MEDIAN_S = 2.0


def main() -> None:
    """Run the rounds and write the table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=20)
    rounds = arguments.parse_args().rounds
    chance = random.Random(20261121)
    claimed, copied = [], []
    with (
        tempfile.TemporaryDirectory(prefix="strandline-bench-") as folder,
        open_site(Path(folder), seed=1, copier={}) as site,
    ):
        site.make_topic(TOPIC, PARTITIONS)
        with site.writer:
            for number in range(rounds):
                key = LogKey(TOPIC, 0, number % PARTITIONS)
                claim_s, copy_s = one_move(site, key, chance)
                claimed.append(claim_s)
                copied.append(copy_s)
    write_table(
        "Leader moved",
        [
            Measure(
                "leader moved -> a segment copied by the new one", "s", copied,
                f"median < {MEDIAN_S:g}", median(copied) < MEDIAN_S,
            ),
            Measure("of that until the new claim stands", "s", claimed),
        ],
        packages=("confluent-kafka",),
        notes=(f"{rounds} moves, default settings, 3 brokers, 3 nodes and MinIO on one machine",),
    )  # fmt: skip


def one_move(site: Site, key: LogKey, chance: random.Random) -> tuple[float, float]:
    """Seconds until the claim, and until the first copy under it."""
    cluster = site.cluster
    old = cluster.leader(TOPIC, key.partition)
    new = chance.choice([each for each in BROKERS if each != old])
    others = [each for each in BROKERS if each != new]
    cluster.reassign(TOPIC, key.partition, [new, *others])
    site.quorum.wait_until(lambda: has_backlog(site, key, old), "a sealed segment to copy")
    client = site.tier(site.quorum.nodes[new], key)
    began = perf_counter()
    cluster.elect(TOPIC, key.partition, ElectionType.PREFERRED)
    claim_s, highest = 0.0, -1
    while (took := perf_counter() - began) < ROUND_DEADLINE_S:
        page = client.status()
        if page["claimed_by_node"] == new:
            if not claim_s:
                claim_s, highest = took, offset(page)
            elif offset(page) > highest:
                return claim_s, took
        sleep(POLL_S)
    raise TimeoutError(f"node {new} copied nothing of {key} within {ROUND_DEADLINE_S} s")


def has_backlog(site: Site, key: LogKey, leader: int) -> bool:
    """True if the leader has a sealed segment that no node has copied."""
    page = site.tier(site.quorum.nodes[leader], key).status()
    active = site.cluster.brokers[leader].segment_files(TOPIC, key.partition)[-1]
    return bool(page) and int(active.stem) > offset(page) + 1


def offset(page: dict[str, Any]) -> int:
    """The highest copied one, inclusive."""
    found = page["highest_copied_offset"]
    return -1 if found is None else int(found)


if __name__ == "__main__":
    main()

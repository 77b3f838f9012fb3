"""What is true of brokers that tier once all is quiet, beside what the auditor finds: each of their
remote log managers has its threads and a task of each kind for each replica, and each task works.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from typing import Final

from tests.e2e.broker_site import SEGMENT_BYTES, Site
from tests.e2e.bucket import stored_objects
from tests.e2e.ledger import LogKey
from tests.e2e.tiering_broker import tasks_of
from tests.real.kafka import KafkaBroker
from tests.real.kafka_cluster import BROKERS
from tests.real.toolbox import require_program

EXPIRED_BYTES: Final = 50_000
HISTOGRAM_S: Final = 60
COPIED_S: Final = 180.0
_TASK: Final = re.compile(
    r"^ *\d+: +(\d+) +\d+ +\S+\$RLM(Copy|Expiration|Follower)Task(?:\s|$)", re.MULTILINE
)
"""A line of a JVM's class histogram: number, instances, bytes, class; not the class's lambdas."""


def wait_for_copies(site: Site) -> None:
    """All that is sealed by now is copied, while more is written."""
    sealed = {
        key: int(site.cluster.leader_log(key.topic, key.partition)[-1].stem) for key in site.logs()
    }

    def is_copied(key: LogKey, end: int) -> bool:
        highest = site.tier(site.leader_node(key), key).status().get("highest_copied_offset")
        return highest is not None and highest >= end - 1

    site.quorum.wait_until(
        lambda: all(is_copied(key, end) for key, end in sealed.items()),
        "copies of all partitions",
        deadline_s=COPIED_S,
    )


def wait_for_retention(site: Site) -> None:
    """Every replica has let go of what is tiered, the tier of what expired or was deleted."""

    def dropped() -> bool:
        return all(
            len(broker.segment_files(key.topic, key.partition)) == 1
            for broker in site.cluster.brokers.values()
            for key in site.logs()
        )

    site.quorum.wait_until(dropped, "local retention on leaders and followers")
    for topic, retained in site.retained.items():
        _wait_for_expiry(site, topic, retained)
    site.wait_for_past_lives_to_go()


def assert_every_task_lives(site: Site, threads: dict[int, set[str]]) -> None:
    """The thread pools of before are there, and as many tasks as replicas. That they copy, and note
    copies of their leaders, was seen before (`wait_for_retention`); that they expire is seen now.
    """
    logs = len(site.logs())
    wanted = {"Copy": logs, "Expiration": logs, "Follower": logs * (len(BROKERS) - 1)}
    brokers = site.cluster.brokers

    def as_many() -> bool:
        found.clear()
        found.update({number: _tasks(each) for number, each in brokers.items()})
        return sum(found.values(), Counter()) == wanted

    found: dict[int, Counter[str]] = {}
    try:
        site.quorum.wait_until(as_many, "tasks")
    except TimeoutError as error:
        raise TimeoutError(f"tasks are {found}, of all brokers {wanted} are wanted") from error
    for number, before in threads.items():
        site.quorum.wait_until(
            lambda: before <= tasks_of(brokers[number]),  # noqa: B023
            f"{before} in broker {number}",
        )
    for topic in site.topics:
        site.set_retention(topic, EXPIRED_BYTES)
        _wait_for_expiry(site, topic, EXPIRED_BYTES)


def delete_all(site: Site) -> None:
    """No topic, no row, no object."""
    for topic in site.topics:
        site.delete_topic(topic)
    site.wait_for_past_lives_to_go()
    assert stored_objects(site.store) == {}


def _tasks(broker: KafkaBroker) -> Counter[str]:
    """Those that live on the heap of the broker's JVM, by kind."""
    command = [require_program("jcmd"), str(broker.pid), "GC.class_histogram"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=HISTOGRAM_S)
    return Counter({kind: int(count) for count, kind in _TASK.findall(done.stdout)})


def _wait_for_expiry(site: Site, topic: str, retained: int) -> None:
    """Each of its partitions has as much in the tier as is retained, but for a segment."""

    def tiered() -> list[int]:
        return [
            site.tier(site.leader_node(key), key).status()["remote_bytes"]
            for key in site.topics[topic].keys
        ]

    site.quorum.wait_until(lambda: max(tiered()) < retained + SEGMENT_BYTES, f"expiry of {topic}")
    kept = tiered()
    assert min(kept) > retained - SEGMENT_BYTES, f"{topic} has {kept} bytes for {retained}"

"""Waits until a site is quiet, then compares what was acknowledged with what can be read.

Of every partition: each record that was acknowledged and is still in retention, each transaction's
outcome, each batch byte for byte as the leader has it on disk; asked of any node, and of the
brokers by ordinary consumers. And the bucket with the metadata. What it finds wrong is a list of
sentences.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Iterator
from typing import Any, Final

from tests.e2e.broker_site import Site, Topic
from tests.e2e.bucket import named_objects, stored_objects
from tests.e2e.ledger import LogKey, contradictions
from tests.e2e.node_process import NodeProcess
from tests.real.kafka_clients import ConsumedRecord, Isolation, consume_all, log_bounds

QUIET_DEADLINE_S: Final = 90
FINISHED: Final = "COPY_SEGMENT_FINISHED"
NOTHING_LEFT: Final = frozenset({"no_sealed_segment", "waiting_for_lso", "delegated"})
NEVER_LOGGED: Final = ("Traceback", "LOST:")
"""An outage of the store is an error in the log as well, and none of the node's."""

LINES_SHOWN: Final = 40
"""Behind such a line: the trace itself, for the logs may be gone by the time somebody looks."""

ISOLATIONS: Final[tuple[Isolation, ...]] = ("read_uncommitted", "read_committed")
_BATCH_PREFIX: Final = struct.Struct(">qi")


class Auditor:
    """Asks a node that chance picks, another one for each question."""

    def __init__(self, site: Site, chance: random.Random) -> None:
        self._site = site
        self._chance = chance
        self._stuck: list[str] = []

    def wait_until_quiet(self) -> None:
        """Everything sealed is copied, nothing is left over, all nodes are in one state."""
        quorum = self._site.quorum
        try:
            quorum.wait_until(self._all_is_copied, "all copied", deadline_s=QUIET_DEADLINE_S)
        except TimeoutError as error:
            raise TimeoutError(f"stuck: {self._stuck}\n{error}") from None
        quorum.wait_until(lambda: len(quorum.states()) == 1, "one state on all nodes")

    def findings(self) -> list[str]:
        """All that is wrong, after `wait_until_quiet`."""
        found = [line for key in self._site.logs() for line in self._of_log(key)]
        for topic in self._site.topics.values():
            found += self._of_past_lives(topic)
        return found + self.bucket_findings() + self._of_nodes()

    def reread(self, before: dict[LogKey, dict[int, bytes]]) -> list[str]:
        """What is not any more as `batches` had it."""
        return [
            f"{key} reads otherwise than before"
            for key, batches in before.items()
            if self.batches(key) != batches
        ]

    def batches(self, key: LogKey) -> dict[int, bytes]:
        """The partition's batches in the tier by base offset, from its log start on."""
        client = self._site.tier(self._any_node(), key)
        start = max(0, client.status()["log_start_offset"])
        return _by_base([client.batches(start=start)], start, None)

    def _all_is_copied(self) -> bool:
        self._stuck = [line for key in self._site.logs() for line in self._uncopied(key)]
        return not self._stuck

    def _uncopied(self, key: LogKey) -> list[str]:
        site = self._site
        leader = site.cluster.leader(key.topic, key.partition)
        if leader not in site.quorum.running:
            return [f"{key} has no leader"]
        active = site.cluster.brokers[leader].segment_files(key.topic, key.partition)[-1]
        client = site.tier(site.quorum.nodes[leader], key)
        status = client.status()
        if not status or status["highest_copied_offset"] != int(active.stem) - 1:
            return [f"{key} on {leader} up to {active.stem}: {_told(status)}"]
        if status["why_not_copying"] not in NOTHING_LEFT:
            return [f"{key} on {leader}: {_told(status)}"]
        return [
            f"{key}: {row['segment_id']} is {row['state']}"
            for row in client.segments()
            if row["state"] != FINISHED
        ]

    def _of_log(self, key: LogKey) -> list[str]:
        """One partition: the ledger, the broker's log and the tier."""
        site = self._site
        client = site.tier(self._any_node(), key)
        status = client.status()
        low, _ = log_bounds(site.cluster.bootstrap, key.topic, key.partition)
        start = max(low, status["log_start_offset"] or 0)  # None: the broker told none yet
        end = status["highest_copied_offset"] + 1
        found = [f"{key} lost {lost}" for lost in status["lost_ranges"]]
        for isolation in ISOLATIONS:
            name = f"{key} {isolation} [{start}, {end})"
            read = client.records(isolation, start=start)
            everything = consume_all(
                site.cluster.bootstrap, key.topic, key.partition, isolation=isolation
            )
            here = [each for each in everything if start <= each.offset < end]
            found += [f"{name}: {line}" for line in _differences(read, here)]
            found += self._of_consumers(key, everything, isolation)
            found += self._against_ledger(key, name, read, start, end, isolation)
        *sealed, active = site.cluster.leader_log(key.topic, key.partition)
        first = max(start, int((sealed or [active])[0].stem))  # of what is on its disk as well
        tiered = _by_base([client.batches(start=start)], first, end)
        local = _by_base((path.read_bytes() for path in sealed), first, end)
        if tiered != local:
            bad = sorted(
                each for each in tiered.keys() | local.keys() if tiered.get(each) != local.get(each)
            )
            found.append(f"{key}: {len(bad)} batches are not the leader's bytes, first {bad[:5]}")
        return found

    def _of_consumers(
        self, key: LogKey, read: list[ConsumedRecord], isolation: Isolation
    ) -> list[str]:
        """All that the brokers gave to one that began at the log start."""
        site, name = self._site, f"{key} {isolation} from the brokers"
        low, high = log_bounds(
            site.cluster.bootstrap, key.topic, key.partition, isolation=isolation
        )
        expires = site.tiering and key.topic in site.retained
        start = low if expires else site.log_starts.get(key, 0)
        found = self._against_ledger(key, name, read, start, high, isolation)
        offsets = [each.offset for each in read]
        if low != start:
            found.append(f"{name}: the log starts at {low} for {start}")
        if offsets != sorted(set(offsets)):
            found.append(f"{name}: not in order, or twice")
        return found

    def _against_ledger(
        self,
        key: LogKey,
        name: str,
        read: list[ConsumedRecord],
        start: int,
        end: int,
        isolation: Isolation,
    ) -> list[str]:
        lines = contradictions(
            self._site.ledger.log(key),
            read,
            start=start,
            end=end,
            committed_only=isolation == "read_committed",
        )
        return [f"{name}: {line}" for line in lines]

    def _of_past_lives(self, topic: Topic) -> list[str]:
        """What was copied before the topic was deleted in Kafka is there as long as it is kept;
        brokers that tier keep nothing of it (`wait_for_past_lives_to_go`).
        """
        if self._site.tiering:
            return []
        found = []
        for life, partitions in enumerate(topic.past_partitions):
            for key in (LogKey(topic.name, life, each) for each in range(partitions)):
                client = self._site.tier(self._any_node(), key)
                status = client.status()
                if status.get("highest_copied_offset") is None:
                    continue
                start, end = status["log_start_offset"] or 0, status["highest_copied_offset"] + 1
                for isolation in ISOLATIONS:
                    read = client.records(isolation, start=start)
                    found += self._against_ledger(key, f"{key}", read, start, end, isolation)
        return found

    def bucket_findings(self) -> list[str]:
        """Objects that no row names, and rows whose objects are not there."""
        site = self._site
        rows = list(self._rows(self._any_node()))
        named = named_objects(site.store.prefix, (row for row in rows if row["state"] == FINISHED))
        begun = {row["segment_id"] for row in rows if row["state"] != FINISHED}
        stored = stored_objects(site.store)
        orphans = sorted(
            key
            for key in stored.keys() - named.keys()
            if not any(segment_id in key for segment_id in begun)
        )
        missing = sorted(named.keys() - stored.keys())
        sizes = sorted(key for key in named.keys() & stored.keys() if named[key] != stored[key])
        told = (("orphans", orphans), ("missing objects", missing), ("other sizes", sizes))
        return [f"{len(some)} {what}: {some[:5]}" for what, some in told if some]

    def _rows(self, node: NodeProcess) -> Iterator[dict[str, Any]]:
        """Every row of every life. Present ones are finished; copies of a topic that was deleted
        meanwhile may have begun and never end: nobody leads it.
        """
        for topic in self._site.topics.values():
            for life, partitions in enumerate([*topic.past_partitions, topic.partitions]):
                for each in range(partitions):
                    yield from self._site.tier(node, LogKey(topic.name, life, each)).segments()

    def _of_nodes(self) -> list[str]:
        return [
            f"node {number} logged: {'; '.join(lines[max(0, at - 1) : at + LINES_SHOWN])}"
            for number, node in self._site.quorum.nodes.items()
            for lines in (node.log.splitlines(),)
            for at, line in enumerate(lines)
            if any(word in line for word in NEVER_LOGGED)
        ]

    def _any_node(self) -> NodeProcess:
        return self._chance.choice(list(self._site.quorum.running.values()))


def _told(status: dict[str, Any]) -> str:
    if not status:
        return "unknown there"
    shown = ("highest_copied_offset", "why_not_copying", "why_not_text", "last_error")
    return ", ".join(f"{name} {status.get(name)}" for name in shown)


def _differences(read: list[ConsumedRecord], expected: list[ConsumedRecord]) -> list[str]:
    for ours, theirs in zip(read, expected, strict=False):
        if ours != theirs:
            return [f"{ours} is read, a consumer of the broker reads {theirs}"]
    if len(read) != len(expected):
        return [f"{len(read)} records are read, {len(expected)} by a consumer of the broker"]
    return []


def _by_base(parts: Iterable[bytes], start: int, end: int | None) -> dict[int, bytes]:
    """Each batch by its base offset, those that begin in [start, end)."""
    found = {}
    for data in parts:
        at = 0
        while at < len(data):
            base, length = _BATCH_PREFIX.unpack_from(data, at)
            size = _BATCH_PREFIX.size + length
            if start <= base and (end is None or base < end):
                found[base] = data[at : at + size]
            at += size
    return found

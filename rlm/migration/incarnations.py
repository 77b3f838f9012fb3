"""Finds the newest of several topics of one name in the metadata topic. Pure.

For the metadata log the newest topic of a name is the one that was recorded last. An import records
topics in the order of the metadata topic's partitions, which does not depend on their age, and the
metadata topic still has records of deleted topics.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_formats.kafka_uuid import Uuid
from rlm.migration.kafka_cache import knows_nothing
from rlm.migration.topic_replay import TopicReplay


class Newest(NamedTuple):
    """The newest topic of a name, and the metadata topic's partitions with records of it."""

    topic: str
    topic_id: Uuid
    metadata_partitions: Collection[int]


@dataclass(slots=True)
class Incarnations:
    """All topics in the metadata topic, by name and id: the time when the first copy began, in
    milliseconds since the epoch, and the metadata topic's partitions. A topic can't be recreated
    before the older one of its name is deleted, so its first copy is later.
    """

    _first_ms: dict[str, dict[Uuid, int]] = field(default_factory=dict)
    _places: dict[tuple[str, Uuid], set[int]] = field(default_factory=dict)

    def note(self, metadata_partition: int, replay: TopicReplay) -> None:
        """Add the topics in a partition of the metadata topic."""
        for tip, cache in replay.caches.items():
            first_ms = replay.first_ms.get(tip)
            if first_ms is None or knows_nothing(cache):
                continue
            by_id = self._first_ms.setdefault(tip.topic, {})
            by_id[tip.topic_id] = min(first_ms, by_id.get(tip.topic_id, first_ms))
            self._places.setdefault((tip.topic, tip.topic_id), set()).add(metadata_partition)

    def misjudged(self, newest: Callable[[str], Uuid]) -> Iterator[Newest]:
        """The newest topics of the names for which `newest` returns a different topic id."""
        for topic, by_id in sorted(self._first_ms.items()):
            if len(by_id) > 1:
                last = max(by_id, key=lambda id_: (by_id[id_], id_))
                if newest(topic) != last:
                    yield Newest(topic, last, sorted(self._places[topic, last]))

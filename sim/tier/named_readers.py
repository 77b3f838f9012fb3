"""Readers that ask for a topic by its name, while topics are deleted and made again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.rows import queries

if TYPE_CHECKING:
    from sim.tier.machine import Process
    from sim.tier.world import World


class NamedReaders:
    """Checks that a name stands for the newest topic of all that the node's metadata has, by the
    order of the log. Nothing is drawn, so that seeds run as before.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._met: set[TopicIdPartition] = set()
        self._by_name: dict[str, list[TopicIdPartition]] = {}

    def committed(self, tip: TopicIdPartition | None) -> None:
        """Take an accepted record of a partition."""
        if tip is not None and tip not in self._met:
            self._met.add(tip)
            self._by_name.setdefault(tip.topic, []).append(tip)

    def ask(self, process: Process) -> None:
        """Ask a node for each topic by name."""
        manager, view = process.manager, process.view
        if manager is None or view is None or self._world.disaster.is_over:
            return
        for topic, met in self._by_name.items():
            newest = next((tip for tip in reversed(met) if queries.is_met(view, tip)), None)
            found = manager.find_partition(topic, 0)
            self._world.auditor.check(
                found == newest,
                "a_name_is_the_newest_topic",
                f"{process.machine.name} says that {topic} is {found}, the newest is {newest}",
            )

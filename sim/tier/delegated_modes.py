"""Topics that brokers tier from some time on, and what admins set about them."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING

from kafka_formats.errors import StrandlineError
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.partition_state import Mode
from rlmm.records.control_records import PartitionModeChange
from rlmm.rows import queries
from sim.tier.partition import Partition

if TYPE_CHECKING:
    from sim.tier.machine import Process
    from sim.tier.world import World


class DelegatedModes:
    """An admin of delegated partitions, who asks any node that works."""

    def __init__(self, world: World, random: Random) -> None:
        self._world = world
        self._random = random

    def ask_admin(self, deed: partial[None]) -> None:
        """Let a deed happen at a node."""
        ups = [machine.up for machine in self._world.machines if machine.up is not None]
        if ups:
            deed(self._random.choice(ups))

    def let_tier(self, partition: Partition) -> None:
        """Let the brokers tier a topic that the nodes copied until now."""
        if partition.is_tiered:
            return
        self._world.note(f"{partition.tip.topic}: remote.storage.enable=true")
        partition.is_tiered = True
        for node_id in sorted(partition.replicas):
            self._world.delegated.hear(partition, node_id)
        self.set_mode(partition, Mode.DELEGATED)

    def set_mode(self, partition: Partition, mode: Mode) -> None:
        """An admin sets the mode."""
        self.ask_admin(partial(self._set_mode, tip=partition.tip, mode=mode))

    def heal(self, partition: Partition) -> None:
        """Decide whose the topic is."""
        state = queries.partition_state(self._world.auditor.reference.rows, partition.tip)
        if state is None or not partition.is_tiered:
            return
        if self._is_refused(partition):
            self._take_back(partition)
        elif state.mode is Mode.SIDECAR:
            self.set_mode(partition, Mode.DELEGATED)

    def _is_refused(self, partition: Partition) -> bool:
        """True if the leader's node keeps it from the broker for its older history."""
        process = self._world.machine(partition.leader).up
        work = process and process.parts and process.parts.table.work(partition.tip)
        return bool(work and "read replica" in (work.wait.text if work.wait else ""))

    def _take_back(self, partition: Partition) -> None:
        """The nodes copy on: this topic is not for its brokers."""
        self._world.note(f"{partition.tip.topic}: remote.storage.enable=false")
        partition.is_tiered = False
        for broker in self._world.delegated.brokers.values():
            broker.stop(partition)
        self.set_mode(partition, Mode.SIDECAR)

    def _set_mode(self, process: Process, *, tip: TopicIdPartition, mode: Mode) -> None:
        self._world.loop.spawn(process.life, self._setting(process, tip, mode))

    async def _setting(self, process: Process, tip: TopicIdPartition, mode: Mode) -> None:
        assert process.manager is not None
        state = process.manager.partition_state(tip)
        if state is None or state.mode is mode:
            return
        try:
            change = PartitionModeChange(tip, mode, state.mode_offset)
            await process.manager.set_partition_mode(change, deadline_s=10.0)
        except StrandlineError as error:
            self._world.note(f"an admin is told {type(error).__name__}")

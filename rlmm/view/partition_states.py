"""A cache of partitions' states, newest topics by name, registered nodes and the cluster's
settings, each kept until a record changes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from kafka_formats.kafka_uuid import ZERO_UUID, Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.partition_state import PartitionState
from rlmm.rows import queries
from rlmm.rows.cluster_settings import SettingRow, all_settings
from rlmm.rows.nodes import RegisteredNode, all_nodes
from rlmm.view.view import View


class PartitionStates:
    """The cache; repeated reads are cheap while nothing changes: an idle node reads every partition
    at each scan of its disks. Used on one event loop; not thread-safe.

    Invariant: after a commit to the view, `committed` is called with the partitions of its records
    before the next read. A state depends only on records about its partition and on registrations
    of nodes: for a commit with registrations or settings, `committed` gets an unknown offset as
    `before`, so that all is forgotten. After any other change of the view (a snapshot was
    installed) all is forgotten too.

    `forgotten` is set whenever nodes and settings may differ from those last returned.
    """

    def __init__(self, view: View, *, kept_max: int) -> None:
        self._view = view
        self._kept_max = kept_max
        self._true_at = view.applied_offset
        self._states: dict[TopicIdPartition, PartitionState] = {}
        self._newest: dict[str, Uuid] = {}
        self._nodes: tuple[RegisteredNode, ...] | None = None
        self._settings: tuple[SettingRow, ...] | None = None
        self.forgotten = asyncio.Event()

    def state(self, partition: TopicIdPartition) -> PartitionState | None:
        """The result of `queries.partition_state`."""
        self._forget_unless_true()
        known = self._states.get(partition)
        if known is not None:
            return known
        state = queries.partition_state(self._view, partition)
        if state is not None:
            if len(self._states) >= self._kept_max:
                del self._states[next(iter(self._states))]
            self._states[partition] = state
        return state

    def find_partition(self, topic: str, partition: int) -> TopicIdPartition | None:
        """The result of `queries.find_partition`, which reads all partitions of the name."""
        self._forget_unless_true()
        known = self._newest.get(topic)
        if known is not None:
            tip = TopicIdPartition(topic, known, partition)
            if queries.is_met(self._view, tip):
                return tip
        newest = queries.newest_topic_id(self._view, topic)
        if newest != ZERO_UUID:
            if len(self._newest) >= self._kept_max:
                del self._newest[next(iter(self._newest))]
            self._newest[topic] = newest
        tip = TopicIdPartition(topic, newest, partition)
        return tip if queries.is_met(self._view, tip) else None

    def nodes(self) -> tuple[RegisteredNode, ...]:
        """The result of `all_nodes`; the same tuple until a record about a node."""
        self._forget_unless_true()
        if self._nodes is None:
            self._nodes = all_nodes(self._view)
        return self._nodes

    def settings(self) -> tuple[SettingRow, ...]:
        """The result of `all_settings`; the same tuple until a record about a setting."""
        self._forget_unless_true()
        if self._settings is None:
            self._settings = all_settings(self._view)
        return self._settings

    def committed(self, partitions: Iterable[TopicIdPartition], before: int) -> None:
        """Take note that records about these partitions, all after metadata offset `before`, were
        committed.
        """
        if self._true_at != before:
            self._forget()
        for partition in partitions:
            self._states.pop(partition, None)
            # A record about the newest topic itself does not change which topic is the newest.
            if self._newest.get(partition.topic) != partition.topic_id:
                self._newest.pop(partition.topic, None)
        self._true_at = self._view.applied_offset

    def _forget_unless_true(self) -> None:
        if self._true_at != self._view.applied_offset:
            self._forget()
            self._true_at = self._view.applied_offset

    def _forget(self) -> None:
        self._states.clear()
        self._newest.clear()
        self._nodes = self._settings = None
        self.forgotten.set()

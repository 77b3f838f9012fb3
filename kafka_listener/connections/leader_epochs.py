"""Asks a partition's leader where an epoch ends in its log."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_formats.errors import CorruptData, RetryLater
from kafka_formats.topic_id_partition import TopicIdPartition
from kafka_listener.connections.brokers import Brokers, ask
from kafka_listener.protocol import offsets
from kafka_listener.protocol.apis import SERVED, Api
from kafka_listener.reading.read_port import EpochEnd
from rlmm.wire.schema import Values

LIST_VERSION = 8


@dataclass(frozen=True, slots=True)
class LeaderEpochs:
    """Implements the port `LeaderEpochs`, over connections of the node's own."""

    brokers: Brokers

    async def end_of(
        self, partition: TopicIdPartition, epoch: int, leader_epoch: int
    ) -> EpochEnd | None:
        leader = await self.brokers.leader(bytes(partition.topic_id), partition.partition)
        if leader is None:
            return None
        name = partition.topic, partition.partition
        asked = offsets.epoch_request(name, epoch, leader_epoch)
        # Ask for the log start last: if it is still below that end, the leader had both epochs in
        # full.
        start = offsets.list_request([name], offsets.EARLIEST)
        try:
            version = SERVED[Api.OFFSET_FOR_LEADER_EPOCH].high
            told = await ask(leader, Api.OFFSET_FOR_LEADER_EPOCH, asked, version_max=version)
            starts = await ask(leader, Api.LIST_OFFSETS, start, version_max=LIST_VERSION)
        except (RetryLater, CorruptData):
            return None
        return _certain(offsets.epoch_end_in(told, name), offsets.offsets_in(starts).get(name))


def _certain(told: EpochEnd | None, start: Values | None) -> EpochEnd | None:
    if told is None or start is None or start["error_code"]:
        return None
    return told if start["offset"] < told.end_offset else None

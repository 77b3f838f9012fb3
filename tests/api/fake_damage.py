"""A remote log of whose segments none is damaged."""

from __future__ import annotations

from kafka_formats.topic_id_partition import TopicIdPartition


class NothingDamaged:
    """The part of `RemoteLogManager` that tells of damaged segments."""

    def is_mending(self, _: TopicIdPartition, /) -> bool:
        return False

    def damage_of(self, _: TopicIdPartition, /) -> None:
        """Nothing is damaged."""

    def try_again(self, _: TopicIdPartition, /) -> None:
        """Nothing waits."""

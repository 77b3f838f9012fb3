"""A remote log of whose segments none is damaged."""

from __future__ import annotations

from rlmm.segment import TopicIdPartition


class NothingDamaged:
    """The part of `api.context.RemoteLog` that tells of damaged segments."""

    def damage_of(self, _: TopicIdPartition, /) -> None:
        """Nothing is damaged."""

    def try_again(self, _: TopicIdPartition, /) -> None:
        """Nothing waits."""

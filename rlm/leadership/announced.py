"""The port to what the plug-in of this node's broker announces."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.segment import RemoteLogSegmentMetadata

Tips = frozenset[TopicIdPartition]


class LookEnded(Protocol):
    """Ends a look at all partitions, or at `among`."""

    def __call__(self, untold: Tips, among: Tips | None = None, /) -> None:
        """Let the look count, but not for `untold`, of which it did not find out enough."""


class Announced(Protocol):
    """The broker's plug-in, met by `rlm.delegated.plugin.Plugin`."""

    def has(self, tip: TopicIdPartition, /) -> bool:
        """True if the broker tiers this partition itself, through this node."""

    @property
    def leaders(self) -> Collection[TopicIdPartition]:
        """The partitions that it leads and tiers."""

    @property
    def is_silent(self) -> bool:
        """True if nothing was heard of it for so long that the broker may run without it."""

    def is_at_work(self, row: RemoteLogSegmentMetadata, token: int, /) -> bool:
        """True while the broker may still finish this unfinished copy, under the claim `token`."""

    def take_news(self) -> bool:
        """True once after partitions were announced, which are to be looked at."""

    def look_begins(self) -> LookEnded:
        """Call the result once the rows are as the look found them: then it counts for what was
        announced before it began.
        """


class NoPlugin:
    """A broker without the plug-in."""

    is_silent = True
    leaders: Collection[TopicIdPartition] = ()

    def has(self, _tip: TopicIdPartition, /) -> bool:
        """Never."""
        return False

    def take_news(self) -> bool:
        """Never."""
        return False

    def look_begins(self) -> LookEnded:
        """Nothing is announced."""
        return _nothing

    def is_at_work(self, _row: RemoteLogSegmentMetadata, _token: int, /) -> bool:
        """Never."""
        return False


def _nothing(_untold: Tips, _among: Tips | None = None, /) -> None:
    """Nobody waits for a look."""

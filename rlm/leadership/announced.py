"""The port for the announcements of the plug-in in this node's broker."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.segment import RemoteLogSegmentMetadata

Tips = frozenset[TopicIdPartition]


class LookEnded(Protocol):
    """Reports the end of a look at all partitions, or at `among`."""

    def __call__(self, untold: Tips, among: Tips | None = None, /) -> None:
        """Count the look for all partitions but `untold`, about which it did not learn enough."""


class Announced(Protocol):
    """The plug-in of this node's broker, implemented by `rlm.delegated.plugin.Plugin`."""

    def has(self, tip: TopicIdPartition, /) -> bool:
        """True if the broker tiers this partition itself, through this node."""

    @property
    def leaders(self) -> Collection[TopicIdPartition]:
        """The partitions that the broker leads and tiers."""

    @property
    def is_silent(self) -> bool:
        """True if the plug-in has not called for so long that the broker may run without it."""

    def is_at_work(self, row: RemoteLogSegmentMetadata, token: int, /) -> bool:
        """True while the broker may still finish this unfinished copy, under the claim `token`."""

    def take_news(self) -> bool:
        """True once after partitions were announced, which have to be looked at."""

    def look_begins(self) -> LookEnded:
        """Begin a look. Call the result when it has updated the rows: then the look counts for
        partitions announced before it began.
        """


class NoPlugin:
    """The port for a broker without the plug-in."""

    is_silent = True
    leaders: Collection[TopicIdPartition] = ()

    def has(self, _tip: TopicIdPartition, /) -> bool:
        """Return False: such a broker tiers no partition itself."""
        return False

    def take_news(self) -> bool:
        """Return False: no partition is ever announced."""
        return False

    def look_begins(self) -> LookEnded:
        """Return a function that does nothing: no announcement waits for a look."""
        return _nothing

    def is_at_work(self, _row: RemoteLogSegmentMetadata, _token: int, /) -> bool:
        """Return False: such a broker copies nothing itself."""
        return False


def _nothing(_untold: Tips, _among: Tips | None = None, /) -> None:
    """Do nothing: no announcement waits for a look."""

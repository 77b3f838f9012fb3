"""What a broker tells besides leadership, as values: they need no Kafka protocol to be imported."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LocalLogStart:
    """First offset on the broker's disk, and the epoch of the leadership that says so."""

    offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """Those configs of a topic that matter here. Limits are in ms and bytes, -1 is unlimited.

    `remote_storage_enable`: the brokers tier this topic themselves.
    """

    cleanup_policy: str
    retention_ms: int
    retention_bytes: int
    remote_storage_enable: bool

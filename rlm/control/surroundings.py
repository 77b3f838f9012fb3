"""Bounds of the control plane, and the callables it uses instead of ambient time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from kafka_formats.kafka_uuid import Uuid
from rlmm.records.node_facts import NO_FACTS, NodeFacts
from rlmm.segment import Incarnation


@dataclass(frozen=True, slots=True)
class CopyLimits:
    """Bounds of the control plane's work and time.

    `scan_interval_s`: pause between two looks at the log directories; a look that takes longer than
    `scan_deadline_s` (a hanging disk) fails. `leadership_interval_s`: least pause between two
    requests to the broker. `epoch_batches_max`: batches of a partition read for the epochs that
    its broker's checkpoint lost. `copies_per_log_dir_max`: parallel copies from one log directory,
    a disk. `stall_deadline_s` without progress ends a copy, long before `upload_deadline_s`.
    `upload_margin_s`: wait past a dead attempt's deadline, or a finished segment's mark, before its
    row goes; covers two nodes' clocks and the time until a store shows a late request.
    `stopped_margin_s` covers the latter alone, for own attempts of a process about to end.
    `finish_deadline_s`: wait of a finished upload for a quorum leader. `store_retry_s`: longest
    pause between two looks at a missing store. `retention_interval_s`: pause between two passes of
    retention; a pass that would take more than `retention_max_percent` of a partition's tiered
    bytes, or the node's, stops. `retention_trash_s`: time from an expiry mark to the log start, and
    that what a later leader's log lacks stays; 0 for no trash. `delete_delay_s` keeps a finished
    segment's objects for running readers. `deletion_settle_s`: head start of the node that claimed
    a deleted partition last. `takeover_settle_s`: wait after a prefix was taken over, for the last
    requests of the nodes before; covers `store_deadline_s` and the clocks. `clock_hold_s`: longest
    wait of deletes after the clocks of node and store were set ahead together.
    """

    scan_interval_s: float = 5.0
    leadership_interval_s: float = 0.5
    scan_deadline_s: float = 60.0
    epoch_batches_max: int = 1_000_000
    copies_parallel_max: int = 4
    copies_per_log_dir_max: int = 4
    claims_parallel_max: int = 32
    clean_ups_parallel_max: int = 8
    part_bytes: int = 12 * 2**20
    parts_parallel: int = 2
    batch_bytes_max: int = 128 * 2**20
    upload_deadline_s: float = 900.0
    upload_margin_s: float = 30.0
    stopped_margin_s: float = 2.0
    stall_deadline_s: float = 60.0
    propose_deadline_s: float = 10.0
    propose_attempts_max: int = 5
    finish_deadline_s: float = 3_600.0
    store_deadline_s: float = 60.0
    store_retry_s: float = 30.0
    backoff_base_s: float = 1.0
    backoff_max_s: float = 300.0
    source_changed_retry_s: float = 1.0
    corrupt_retry_s: float = 600.0
    retention_interval_s: float = 60.0
    retention_max_percent: float = 50.0
    retention_trash_s: float = 0.0
    delete_delay_s: float = 60.0
    takeover_settle_s: float = 90.0
    deletion_settle_s: float = 60.0
    clock_difference_max_s: float = 15.0
    clock_check_interval_s: float = 600.0
    clock_hold_s: float = 259_200.0
    shutdown_deadline_s: float = 10.0
    once_attempts_max: int = 3
    once_clean_up_wait_s: float = 30.0

    @property
    def mark_deadline_s(self) -> float:
        """The time for which a record of a deletion is proposed; it has the time of its making."""
        return self.propose_deadline_s * self.propose_attempts_max


@dataclass(frozen=True, slots=True)
class Ambient:
    """Clock, sleep and randomness. `now_ms` is wall clock milliseconds since the epoch."""

    now_ms: Callable[[], int]
    monotonic: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    random_fraction: Callable[[], float]
    new_uuid: Callable[[], Uuid]


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of the node: its Strandline cluster, the Kafka cluster it serves, and this life of
    it. `kafka_cluster_id` None takes log directories of any cluster (a standalone directory).
    `facts` are registered with it.
    """

    cluster_id: str
    kafka_cluster_id: str | None
    incarnation: Incarnation
    facts: NodeFacts = NO_FACTS


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Everything that is the same for all parts of a node's control plane."""

    identity: Identity
    limits: CopyLimits
    ambient: Ambient

"""Every bound of the control plane, and the callables it is handed instead of ambient time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from kafka_formats.kafka_uuid import Uuid
from rlmm.segment import Incarnation


@dataclass(frozen=True, slots=True)
class CopyLimits:
    """How much at once, and how long anything may take.

    `scan_interval_s` is the pause between two looks at the log directories, `leadership_interval_s`
    the least between two questions to the broker who leads, `scan_deadline_s` when
    a look that does not end (a disk that hangs) is told. No more than `epoch_batches_max` batches
    of a partition are read for the epochs that its broker's checkpoint lost.
    `stall_deadline_s` without progress ends a
    copy long before `upload_deadline_s` does. `upload_margin_s` is waited
    past a dead attempt's deadline, or a finished segment's mark, before its row goes; it covers
    the difference of two nodes' clocks and the time a store may need to make a late request
    visible. `stopped_margin_s` covers the latter alone, for attempts of this very process when it
    is about to end and could not wait for more.
    `finish_deadline_s` bounds how long a finished upload waits for a quorum leader.
    `store_retry_s` is the pause between two looks at a store, not the default one, that is missing.
    `copies_per_log_dir_max` of the copies at once read from one log directory, which is a disk.
    `retention_interval_s` is the pause between two passes of retention, and a pass that would take
    more than `retention_max_percent` of a partition's tiered bytes, or of the node's, stops.
    `delete_delay_s` keeps the objects of a once finished segment for running readers.
    `deletion_settle_s` is how long the other nodes leave a partition's deletion to the node that
    claimed it last.
    `takeover_settle_s` is waited after a prefix was taken over, for the last requests of the nodes
    before; it covers `store_deadline_s` and the difference of the clocks.
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
    delete_delay_s: float = 60.0
    takeover_settle_s: float = 90.0
    deletion_settle_s: float = 60.0
    clock_difference_max_s: float = 15.0
    clock_check_interval_s: float = 600.0
    shutdown_deadline_s: float = 10.0
    once_attempts_max: int = 3
    once_clean_up_wait_s: float = 30.0


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
    """Who this node is: the Strandline cluster, the Kafka cluster it serves, and this life of it.

    `kafka_cluster_id` None takes log directories of any cluster (a standalone directory).
    """

    cluster_id: str
    kafka_cluster_id: str | None
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Everything that is the same for all parts of a node's control plane."""

    identity: Identity
    limits: CopyLimits
    ambient: Ambient

"""Every bound of the HTTP interface."""

from __future__ import annotations

from dataclasses import dataclass

PAGE_ITEMS_DEFAULT = 100
PAGE_ITEMS_MAX = 1_000
HISTORY_ENTRIES_DEFAULT = 100
HISTORY_ENTRIES_MAX = 1_000
RECORDS_BYTES_DEFAULT = 1_048_576
RECORDS_BYTES_MAX = 1_073_741_824
CHECKPOINT_ENTRIES_MAX = 10_000
"""The most leader epochs in a request; a partition with more leader epochs can't send one."""
PROBLEMS_SHOWN_MAX = 100
SCAN_ITEMS_PER_SLICE = 32
"""Rows that a list reads before the event loop gets a turn."""
COVERAGE_BYTES_PER_CHUNK = 65_536
"""Bytes that a stream of coverage sends at once."""
STATUSES_PER_SLICE = 8
"""Statuses computed before the event loop gets a turn; each takes a hundred microseconds."""


@dataclass(frozen=True, slots=True)
class ApiLimits:
    """Bounds and deadlines of the interface.

    `answer_deadline_s` runs until an answer starts, reading the request's body included; from then
    on `chunk_deadline_s` bounds reading and sending each chunk of a stream. `min_offset_wait_s`
    bounds the wait for `Strandline-Min-Metadata-Offset`. `header_deadline_s` runs from a
    connection's opening or a request's first byte to the end of the headers, and bounds a TLS
    handshake; `connections_max` bounds handshakes under way, too, and the oldest one is ended for a
    new one. Up to `connections_refused_max` connections above it are answered with an error,
    further ones are aborted. `idle_deadline_s` bounds the pause between two requests.
    `quorum_deadline_s` bounds a change of the quorum, below `answer_deadline_s`.
    `stream_bytes_per_s_min` is the least average speed of a stream's client, after the first
    `chunk_deadline_s`. `streams_parallel_max` is far below a worker's jobs, so that slow readers
    can't keep copies out. `hand_on_deadline_s` bounds a request that is forwarded to a different
    node, `forwarded_parallel_max` such requests under way.

    `view_deadline_s` bounds each node's part of a view of the whole cluster, for which
    `view_nodes_parallel_max` nodes are asked at once; `view_asks_per_node_max` requests are with
    one node at once, so that a node that hangs delays no other node. Each of `views_parallel_max`
    such views has the parts of all nodes in memory, up to two megabytes each.

    `event_streams_max` bounds streams of events; each looks for a new event every `event_pause_s`,
    sends a heartbeat if there is none after `event_beat_s`, and ends after `event_stream_s`, so
    that a revoked token is noticed. `health_parallel_max` bounds health and readiness, which
    `requests_parallel_max` does not count. `pipelined_requests_max` requests may wait on a
    connection.
    """

    body_bytes_max: int = 1_048_576
    header_bytes_max: int = 65_536
    requests_parallel_max: int = 500
    health_parallel_max: int = 32
    streams_parallel_max: int = 64
    forwarded_parallel_max: int = 32
    view_nodes_parallel_max: int = 16
    view_asks_per_node_max: int = 4
    views_parallel_max: int = 16
    event_streams_max: int = 64
    stream_bytes_per_s_min: int = 131_072
    connections_max: int = 1_000
    connections_refused_max: int = 64
    pipelined_requests_max: int = 32
    answer_deadline_s: float = 30.0
    body_deadline_s: float = 10.0
    chunk_deadline_s: float = 30.0
    min_offset_wait_s: float = 5.0
    quorum_deadline_s: float = 20.0
    hand_on_deadline_s: float = 25.0
    view_deadline_s: float = 2.0
    event_pause_s: float = 1.0
    event_beat_s: float = 10.0
    event_stream_s: float = 60.0
    header_deadline_s: float = 10.0
    idle_deadline_s: float = 60.0
    close_iterator_deadline_s: float = 5.0
    shutdown_deadline_s: float = 10.0

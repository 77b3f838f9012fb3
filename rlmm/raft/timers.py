"""Time-outs, periods and bounds of the quorum, with Kafka's names and defaults where it has them.

`controller.quorum.*` of Kafka 4.3: election.timeout.ms, fetch.timeout.ms, election.backoff.max.ms,
request.timeout.ms, retry.backoff.ms, fetch.max.bytes, fetch.snapshot.max.bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

NEVER_MS = 1 << 62
"""A deadline that is never reached."""


@dataclass(frozen=True, slots=True)
class RaftSettings:
    """Times in milliseconds. An election time-out is drawn from [T, 2T).

    `commit_news_wait_max_ms`: how long a follower's fetch for which there is only a new high
    watermark waits for records (`parked_fetches.py`). `download_forgotten_ms`: how long a snapshot
    is kept after the last fetch of the replica that downloads it (`snapshots.py`).
    """

    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    pre_vote_retry_ms: int = 100
    fetch_wait_max_ms: int = 500
    commit_news_wait_max_ms: int = 5
    fetch_bytes_max: int = 1024 * 1024
    fetch_snapshot_bytes_max: int = 1024 * 1024
    batch_bytes_max: int = 8 * 1024 * 1024
    proposals_max: int = 100_000
    waiters_max: int = 100_000
    observers_max: int = 1000
    observer_forgotten_ms: int = 300_000
    download_forgotten_ms: int = 60_000
    caught_up_within_ms: int = 10_000
    transfer_timeout_ms: int = 2000
    shutdown_timeout_ms: int = 1000

    def __post_init__(self) -> None:
        if self.fetch_wait_max_ms * 4 > self.fetch_timeout_ms:
            raise ValueError(
                f"fetch_wait_max_ms {self.fetch_wait_max_ms} is more than a quarter of "
                f"fetch_timeout_ms {self.fetch_timeout_ms}: a parked fetch would look like a dead "
                "leader"
            )
        if self.election_timeout_ms <= 0 or self.retry_backoff_ms <= 0:
            raise ValueError("election_timeout_ms and retry_backoff_ms must be positive")

    @property
    def check_quorum_ms(self) -> int:
        """The time after which a leader resigns if no majority has fetched, or its disk has synced
        nothing.
        """
        return self.fetch_timeout_ms * 3 // 2

    @property
    def begin_quorum_epoch_period_ms(self) -> int:
        """The time after which BeginQuorumEpoch is sent again to a voter that has not fetched."""
        return self.fetch_timeout_ms // 2

    @property
    def fetch_request_timeout_ms(self) -> int:
        """The timeout of a fetch; a lost one is repeated before the fetch timeout elapses."""
        return self.fetch_wait_max_ms + self.fetch_timeout_ms // 4

    def election_timeout(self, fraction: float) -> int:
        """T plus `fraction`, in [0, 1), of T."""
        return self.election_timeout_ms + int(self.election_timeout_ms * fraction)

    def successor_backoff(self, position: int) -> int:
        """The successor's wait before it stands for election: 0 for the first, then exponentially
        longer.
        """
        if position == 0:
            return 0
        return min(self.retry_backoff_ms << min(position, 20), self.election_backoff_max_ms)

"""The common share of all clients that are not peers: requests per second, and memory for answers.

The event loop that answers them also does the leader's work, so peers come first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class AnonymousShare:
    """The anonymous clients' share of one listener. `held_bytes`: answers that no client has taken
    yet, over all connections.
    """

    def __init__(
        self, *, requests_per_turn: int, requests_per_s: int, answer_bytes_max: int
    ) -> None:
        self._requests_per_turn = self._turn_left = requests_per_turn
        self._requests_per_s = requests_per_s
        self._answer_bytes_max = answer_bytes_max
        self._requests_left = requests_per_s
        self._being_read = 0
        self._reads_refused = 0
        self.held_bytes = 0

    @property
    def free_bytes(self) -> int:
        """The bytes left for another answer; may be negative."""
        return self._answer_bytes_max - self.held_bytes - self._being_read

    @property
    def is_spent(self) -> bool:
        """True if no requests are left in this second."""
        return self._requests_left <= 0

    @property
    def turn_has_begun(self) -> bool:
        """True if requests were taken in this turn, so that `next_turn` is already scheduled."""
        return self._turn_left < self._requests_per_turn

    @property
    def turn_is_spent(self) -> bool:
        """True if no requests are left in this turn of the event loop."""
        return self._turn_left <= 0

    def take_requests(self, requests: int, *, of_this_second: int) -> None:
        self._turn_left -= requests
        self._requests_left -= of_this_second

    def next_turn(self) -> None:
        self._turn_left = self._requests_per_turn

    def refuse_read(self) -> None:
        """Count a read that was refused because there was no room for its answer."""
        self._reads_refused += 1

    def short_of(self) -> str | None:
        """The setting whose limit was reached in this second; None if none was."""
        if self.is_spent:
            return f"quorum.anonymous_requests_per_s_max is {self._requests_per_s}"
        if self._reads_refused:
            return f"quorum.anonymous_answer_bytes_max is {self._answer_bytes_max}"
        return None

    def next_second(self) -> None:
        self._reads_refused = 0
        self._requests_left = self._requests_per_s

    @contextmanager
    def reading(self, size_bytes: int) -> Iterator[None]:
        """Reserve the bytes of a read while it runs; afterwards its answer counts as held."""
        self._being_read += size_bytes
        try:
            yield
        finally:
            self._being_read -= size_bytes

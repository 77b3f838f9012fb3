"""The common share of all clients that are not peers: requests a second, and memory for answers.

The event loop that answers them is the one that leads, so peers come first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class AnonymousShare:
    """The anonymous clients' share of one listener. `held_bytes` are answers that no client has
    taken yet, of all connections.
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
        """Room for reading another answer; may be negative."""
        return self._answer_bytes_max - self.held_bytes - self._being_read

    @property
    def is_spent(self) -> bool:
        """True if this second has no requests left."""
        return self._requests_left <= 0

    @property
    def turn_has_begun(self) -> bool:
        """True if `next_turn` is due already."""
        return self._turn_left < self._requests_per_turn

    @property
    def turn_is_spent(self) -> bool:
        """True if this turn of the event loop has no requests left."""
        return self._turn_left <= 0

    def take_requests(self, requests: int, *, of_this_second: int) -> None:
        self._turn_left -= requests
        self._requests_left -= of_this_second

    def next_turn(self) -> None:
        self._turn_left = self._requests_per_turn

    def refuse_read(self) -> None:
        """Count a read without room."""
        self._reads_refused += 1

    def short_of(self) -> str | None:
        """The setting that ran out in this second; None: there was enough."""
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
        """Reserve the bytes that are being read; the answer is held afterwards."""
        self._being_read += size_bytes
        try:
            yield
        finally:
            self._being_read -= size_bytes

"""What all clients that are no peers get of a listener together: requests a second, and memory for
answers. The event loop that answers them is the one that leads, so peers come first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class AnonymousShare:
    """One listener's. `held_bytes` are of answers that nobody has taken yet, of all connections."""

    def __init__(self, *, requests_per_s: int, answer_bytes_max: int) -> None:
        self._requests_per_s = requests_per_s
        self._answer_bytes_max = answer_bytes_max
        self._requests_left = requests_per_s
        self._being_read = 0
        self.held_bytes = 0

    @property
    def free_bytes(self) -> int:
        """Room for what is read for another answer; may be negative."""
        return self._answer_bytes_max - self.held_bytes - self._being_read

    @property
    def is_spent(self) -> bool:
        """No more requests in this second."""
        return self._requests_left <= 0

    def take_request(self) -> None:
        self._requests_left -= 1

    def next_second(self) -> None:
        self._requests_left = self._requests_per_s

    @contextmanager
    def reading(self, size_bytes: int) -> Iterator[None]:
        """While so much is read for an answer, which is held from then on."""
        self._being_read += size_bytes
        try:
            yield
        finally:
            self._being_read -= size_bytes

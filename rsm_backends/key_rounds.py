"""How often this process was asked to look for its stores' keys anew: once for each SIGHUP."""

from __future__ import annotations


class _Rounds:
    asked = 0


def look_again() -> None:
    """All stores of this process look for their keys anew, each at its next request."""
    _Rounds.asked += 1


def current_round() -> int:
    """Grows with each time that was asked for."""
    return _Rounds.asked

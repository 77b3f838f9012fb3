"""Counts requests to read the stores' credentials again: one for each SIGHUP of this process."""

from __future__ import annotations


class _Rounds:
    asked = 0


def look_again() -> None:
    """Make all stores of this process read their keys again, each at its next request."""
    _Rounds.asked += 1


def current_round() -> int:
    """The number of such requests so far."""
    return _Rounds.asked

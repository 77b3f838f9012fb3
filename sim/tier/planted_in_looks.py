"""Planted bugs that show in the first moments of a new leader of a partition that brokers tier."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from rlm.copy.scanner import Look, Scanner
from rlm.delegated.plugin import Plugin
from sim.ground.planting import Patches, edited, planting

LOOKS_SEEDS_MAX = 40
LOOKS_EVENTS = 800


def _method(owner: type, name: str, old: str, new: str) -> Patches:
    return ((owner, name, edited(getattr(owner, name), old, new)),)


BUGS_OF_LOOKS: dict[str, Callable[[], Patches]] = {
    "a look counts that could not read the directory": partial(
        _method, Scanner, "_untold", "frozenset(self._leaders)",
        "(frozenset(self._leaders) & words.keys())",
    ),
    "a look counts before the broker says that it leads": partial(
        _method, Scanner, "_untold", "words.items() if isinstance(word, Leads)",
        "words.items()",
    ),
    "a look at one counts before the epoch is on the disk": partial(
        _method, Look, "told_of", "not in self.untold", "in asked"
    ),
    "a look at one counts for all": partial(
        _method, Plugin, "look_begins", "among & waiting.keys()", "waiting.keys()"
    ),
}  # fmt: skip
"""Bugs found by seeds with these moments, within `LOOKS_SEEDS_MAX`."""


def planted_in_looks(name: str) -> AbstractContextManager[None]:
    """Plant the bug for the length of the block."""
    return planting(BUGS_OF_LOOKS[name]())

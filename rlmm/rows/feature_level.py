"""The feature levels of the metadata that a program can apply. Pure.

The level is Kafka's `metadata.version` (KIP-584): finalised in the log, it only increases, and only
with it changes the meaning of records. Programs of several releases compute the same state as long
as all know the level, and a release can be rolled back until the level is raised.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from kafka_formats.errors import Conflict, InvalidRequest, Refused
from rlmm.migration_phase import MIGRATION_LEVEL
from rlmm.rows.keys import FEATURE_LEVEL_KEY
from rlmm.rows.reads import FIRST_FEATURE_LEVEL, read_feature_level
from rlmm.rows.rows import RowReader
from rlmm.rows.values import decode_feature_level

FEATURE = "metadata.version"
"""The level's name in the protocol, as in Kafka."""

DELEGATED_LOSS_LEVEL = 2
"""The level from which on offsets of a delegated partition that are missing after a restart from a
snapshot can be recorded as lost.
"""


REJOINING_LEVEL = 2
"""The level from which on a removed node's process registers again without a restart."""


@dataclass(frozen=True, slots=True)
class FeatureLevels:
    """The range of levels that a program supports; both ends inclusive."""

    lowest: int
    highest: int

    def __str__(self) -> str:
        return f"{self.lowest} to {self.highest}"

    def __contains__(self, level: int) -> bool:
        return self.lowest <= level <= self.highest


LEVELS_KNOWN = FeatureLevels(FIRST_FEATURE_LEVEL, MIGRATION_LEVEL)
"""The levels that this program supports."""


def check_feature_level(rows: RowReader, known: FeatureLevels) -> None:
    """Check that this program supports the rows' level; Refused if not."""
    _check(read_feature_level(rows)[0], known)


def of_known_level(
    rows: Iterable[tuple[bytes, bytes]], known: FeatureLevels
) -> Iterator[tuple[bytes, bytes]]:
    """Return the rows of a snapshot, after checking its level, which is the first row. Raises as
    `check_feature_level`.
    """
    rest = iter(rows)
    first = next(rest, None)
    if first is None or first[0] != FEATURE_LEVEL_KEY:
        _check(FIRST_FEATURE_LEVEL, known)
    else:
        _check(decode_feature_level(first[1])[0], known)
    return rest if first is None else chain((first,), rest)


def _check(level: int, known: FeatureLevels) -> None:
    if level > known.highest:
        raise Refused(
            f"the metadata has feature level {level}, and this program knows {known}: run a newer "
            "Strandline on this node. Its data directory is undamaged"
        )
    if level < known.lowest:
        raise Refused(
            f"the metadata has feature level {level}, and this program knows {known}: run the "
            f"release before it on every node, `strandline quorum finalize {known.lowest}`, then "
            "upgrade"
        )


def check_may_finalise(
    level: int, finalised: int, levels: Mapping[int, FeatureLevels], unasked: tuple[int, ...]
) -> None:
    """Check that the level may be raised. InvalidRequest: `level` is lower. Conflict: a node would
    stop, by `levels` (known levels by node id), or might, being one of `unasked`.
    """
    if level < finalised:
        raise InvalidRequest(
            f"the feature level is {finalised} and can only be raised", field="feature_level"
        )
    behind = [f"node {node} knows {known}" for node, known in sorted(levels.items())
              if level not in known]  # fmt: skip
    if behind:
        raise Conflict(
            f"feature level {level} is not known everywhere: {', '.join(behind)}. Nothing was "
            "changed; upgrade those nodes first",
            reason="UNSUPPORTED_FEATURE_LEVEL",
        )
    if unasked:
        raise Conflict(
            f"the observers {', '.join(map(str, unasked))} cannot be asked which feature levels "
            f"they know, and would stop if they don't know {level}. Upgrade them, then confirm "
            "that observers are upgraded",
            reason="OBSERVERS_NOT_ASKED",
        )

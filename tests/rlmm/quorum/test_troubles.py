"""What a replica has trouble with stands as long as it is repeated, or until it went well."""

from __future__ import annotations

from rlmm.quorum.troubles import CLIENTS, OLD_SNAPSHOTS, STANDS_MS, QuorumTroubles
from rlmm.raft.actions import ANOTHER_QUORUM


def test_what_is_repeated_stands_and_is_over_when_it_is_not() -> None:
    now = 5
    troubles = QuorumTroubles(lambda: now)
    assert troubles.standing() == ()
    troubles.repeated(ANOTHER_QUORUM, "at offset 3")
    now += STANDS_MS
    troubles.repeated(CLIENTS, "too many")
    assert troubles.standing() == ((ANOTHER_QUORUM, "at offset 3"), (CLIENTS, "too many"))
    now += 1
    assert troubles.standing() == ((CLIENTS, "too many"),)


def test_what_is_done_at_times_stands_until_it_went_well() -> None:
    now = 5
    troubles = QuorumTroubles(lambda: now)
    troubles.began(OLD_SNAPSHOTS, "no right")
    now += 100 * STANDS_MS
    assert troubles.standing() == ((OLD_SNAPSHOTS, "no right"),)
    troubles.over(OLD_SNAPSHOTS)
    troubles.over(OLD_SNAPSHOTS)
    assert troubles.standing() == ()

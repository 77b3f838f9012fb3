"""What a question of a broker's bridge proves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlm.migration.acknowledgements import LEASE_S, Acknowledgement
from rlmm.migration_phase import Migration, MigrationPhase

SWITCHING = Migration(MigrationPhase.SWITCHING, 70, "kafka-1", "ann", "the move", 1_000)
SEEN = Acknowledgement(3, "0.1.0", MigrationPhase.SWITCHING, 0, 70, 100.0)


def test_a_question_behind_the_record_with_the_phase_seen_and_nothing_under_way_confirms() -> None:
    assert SEEN.confirms(SWITCHING)


@pytest.mark.parametrize(
    "other",
    [
        replace(SEEN, outstanding=1),
        replace(SEEN, seen=int(MigrationPhase.KAFKA)),
        replace(SEEN, seen=-1),
        replace(SEEN, since=60),  # it came before the record: an answer from before may follow
    ],
)
def test_any_other_does_not(other: Acknowledgement) -> None:
    assert not other.confirms(SWITCHING)


def test_that_of_an_earlier_switch_does_not_confirm_a_later_one() -> None:
    assert not SEEN.confirms(replace(SWITCHING, since=90))


def test_a_lease_ends_with_its_time() -> None:
    assert SEEN.has_lease(100.0 + LEASE_S - 0.1)
    assert not SEEN.has_lease(100.0 + LEASE_S)
    assert SEEN.age_s(99.0) == 0.0

"""A batch's place is borne out by what stands beside it."""

from __future__ import annotations

import pytest

from rlm.local_log.batch_places import Beside, Place, place_of


@pytest.mark.parametrize(
    ("before", "behind", "place"),
    [
        (Beside(9), None, Place.BORNE_OUT),
        (None, Beside(13), Place.BORNE_OUT),
        (Beside(9), Beside(20), Place.BORNE_OUT),
        (Beside(11), Beside(13), Place.BORNE_OUT),  # the one before is out of place
        (None, None, Place.ALONE),
        (Beside(5), Beside(20), Place.ALONE),
        (Beside(10), None, Place.CONTRADICTED),
        (Beside(5), Beside(12), Place.CONTRADICTED),
        (Beside(9, near=False), None, Place.BORNE_OUT),
        (Beside(9, near=False), Beside(13), Place.BORNE_OUT),
        (Beside(9, near=False), Beside(20), Place.ALONE),
        (Beside(5), Beside(13, near=False), Place.ALONE),
        (Beside(11), Beside(13, near=False), Place.BORNE_OUT),
        (None, Beside(13, near=False), Place.BORNE_OUT),
    ],
)
def test_a_batch_that_claims_10_to_12(
    before: Beside | None, behind: Beside | None, place: Place
) -> None:
    assert place_of(before, 10, 12, behind) is place

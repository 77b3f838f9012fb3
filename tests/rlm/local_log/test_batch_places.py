"""A batch's place is borne out by the batches directly beside it."""

from __future__ import annotations

import pytest

from rlm.local_log.batch_places import is_in_order, joins


@pytest.mark.parametrize(
    ("before", "behind", "joined", "in_order"),
    [
        (9, None, True, True),
        (None, 13, True, True),
        (9, 20, True, True),
        (11, 13, True, False),  # the one before is out of place
        (None, None, False, True),
        (5, 20, False, True),
        (10, None, False, False),
        (5, 12, False, False),
    ],
)
def test_a_batch_that_claims_10_to_12(
    before: int | None, behind: int | None, joined: bool, in_order: bool
) -> None:
    assert joins(before, 10, 12, behind) is joined
    assert is_in_order(before, 10, 12, behind) is in_order

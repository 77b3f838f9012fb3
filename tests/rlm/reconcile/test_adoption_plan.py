"""The next step of an adoption, by what the state, the store and the machine have."""

from __future__ import annotations

import pytest

from rlm.format.custom_metadata import CustomMetadata
from rlm.reconcile.adoption_plan import (
    WHY_GONE,
    WHY_HELD,
    Adopt,
    AdoptionStep,
    CopyFirst,
    Lose,
    OnMachine,
    StartAt,
    WholeSegment,
    next_step,
)
from rlmm.partition_state import Mode
from tests.rlm.planner_facts import epochs, segment_row, state

LINEAGE = epochs((0, 0), (1, 30))
STORED = WholeSegment(
    segment_row(1, 30, 39, leader_epochs=((1, 30),)),
    CustomMetadata("main", 1, 1, 1, 1, 1, 1),
)


@pytest.mark.parametrize(
    ("log_start", "next_offset", "machine", "expected"),
    [
        # nothing is known: it begins at the lowest offset that anybody has
        (-1, -1, OnMachine(40, 40), StartAt(1, 30)),
        (-1, -1, OnMachine(40, 40, ((10, 19),)), StartAt(0, 10)),
        (-1, -1, OnMachine(20, 20), CopyFirst(30)),
        # a hole below the stored segment
        (0, 30, OnMachine(40, 40), Adopt(STORED)),
        (0, 20, OnMachine(20, 20), CopyFirst(30)),
        (0, 20, OnMachine(40, 40), Lose(20, 29)),
        (0, 20, OnMachine(25, 25), Lose(20, 24)),
        # ... that the broker's log should have, and its replicas may
        (0, 20, OnMachine(40, 20), CopyFirst(30)),
        (0, 20, OnMachine(40, 25), Lose(20, 24)),
        # ... of which the hold has a part
        (0, 10, OnMachine(40, 40, ((10, 19),)), Lose(10, 19, WHY_HELD)),
        (0, 10, OnMachine(40, 40, ((12, 19),)), Lose(10, 11)),
        (0, 10, OnMachine(40, 40, ((12, 19), (20, 49))), Lose(10, 11)),
        (0, 20, OnMachine(40, 40, ((12, 19), (20, 49))), Lose(20, 29, WHY_HELD)),
        (0, 20, OnMachine(40, 40, ((0, 9),)), Lose(20, 29)),
    ],
)
def test_the_next_step(
    log_start: int, next_offset: int, machine: OnMachine, expected: AdoptionStep
) -> None:
    now = state(lineage=LINEAGE, log_start=log_start, next_offset=next_offset)
    assert next_step(now, [STORED], machine) == expected


def test_an_earlier_copy_of_a_head_that_a_longer_one_lacks_comes_first() -> None:
    """Both begin at the base of one file: of the second, DeleteRecords had taken the head."""
    custom = STORED.custom_metadata
    head = WholeSegment(segment_row(1, 0, 0, leader_epochs=((0, 0),)), custom)
    longer = WholeSegment(segment_row(2, 0, 8, leader_epochs=((0, 1),)), custom)
    beyond = WholeSegment(segment_row(3, 0, 12, leader_epochs=((0, 5),)), custom)
    whole, machine = [beyond, longer, head, STORED], OnMachine(40, 40)
    now = state(lineage=LINEAGE, log_start=-1, next_offset=-1)
    assert next_step(now, whole, machine) == StartAt(0, 0)
    now = state(lineage=LINEAGE, log_start=0, next_offset=0)
    assert next_step(now, whole, machine) == Adopt(head)
    now = state(lineage=LINEAGE, log_start=0, next_offset=1)
    assert next_step(now, [beyond, longer, STORED], machine) == Adopt(longer)
    assert next_step(now, [beyond, STORED], machine) == Lose(1, 4)


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        # its broker deleted the hole, or only a part of it
        (OnMachine(40, 30), Adopt(STORED)),
        (OnMachine(40, 25), CopyFirst(30)),
        (OnMachine(40, 0), CopyFirst(30)),
        # its disk has it, or a part of it, and copies that first
        (OnMachine(0, 0, (), 20), CopyFirst(30)),
        (OnMachine(0, 0, (), 25), Lose(20, 24, WHY_GONE)),
        # neither the store nor its disk has it
        (OnMachine(0, 0, (), 30), Lose(20, 29, WHY_GONE)),
        (OnMachine(0, 0, (), 40), Lose(20, 29, WHY_GONE)),
        # ... and a part of it went by its own retention
        (OnMachine(25, 25, (), 40), StartAt(0, 25)),
        (OnMachine(25, 25, (), 25), CopyFirst(30)),
    ],
)
def test_a_hole_of_a_delegated_partition_is_copied_by_its_broker_or_lost(
    machine: OnMachine, expected: AdoptionStep
) -> None:
    now = state(lineage=LINEAGE, log_start=0, next_offset=20, mode=Mode.DELEGATED)
    assert next_step(now, [STORED], machine) == expected


def test_what_is_given_up_is_waited_for_no_more() -> None:
    """Below feature level 2 it is not recorded, and the next offset stays below it."""
    now = state(lineage=LINEAGE, log_start=0, next_offset=20, mode=Mode.DELEGATED)
    assert next_step(now, [STORED], OnMachine(0, 0, (), 40), given_up=30) == Adopt(STORED)
    assert next_step(now, [STORED], OnMachine(0, 0, (), 25), given_up=25) == CopyFirst(30)

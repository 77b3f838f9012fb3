"""The fate of links to active segments."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlm.local_log.active_plan import Fate, fate, to_link
from rlm.local_log.committed_plan import LastSeen, committed_end
from rlm.local_log.hold_plan import HoldFacts, Unit
from rlmm.partition_state import LostOffsets
from tests.rlm.local_log.test_hold_plan import facts, live, segment, unit
from tests.rlm.planner_facts import epochs

LEFT = facts(live(35), (0, 35))
SEEN = epochs((0, 0))


def is_committed(unit: Unit, facts: HoldFacts | None, seen: LastSeen, led: int | None) -> bool:
    return committed_end(unit, facts, seen, led) == unit.next_base_offset


def test_an_active_segment_with_records_is_linked_unless_nobody_wants_them() -> None:
    log = facts(live(0, 30))
    assert to_link(log) == log.segments[-1]
    assert to_link(replace(log, left_out=True)) is None
    assert to_link(replace(log, deleted=True)) is None
    assert to_link(replace(log, checkpoint=())) is None
    assert to_link(facts((segment(0, 30), segment(30, None, size=0)))) is None


def test_a_link_stays_until_the_sealed_segment_is_held_or_tiered() -> None:
    own, log = segment(0, 30), facts(live(0, 30), committed=10)
    assert fate(log, 30, SEEN, log.segments[-1], ()) is Fate.KEEP
    assert fate(log, 0, SEEN, own, ()) is Fate.KEEP, "it is not committed yet"
    assert fate(log, 0, SEEN, own, (unit(0, 30, alone=False),)) is Fate.DROP
    assert fate(log, 0, SEEN, own, (unit(0, 20, alone=False),)) is Fate.KEEP
    assert fate(log, 0, SEEN, own, (unit(0, 30),)) is Fate.KEEP, "that is another file"
    assert fate(replace(log, next_offset=30), 0, SEEN, own, ()) is Fate.DROP
    cut = facts(live(0, 30), (0, 0), (2, 10), next_offset=30)
    older = replace(cut, lineage=epochs((0, 0), (1, 40)))
    assert fate(older, 0, SEEN, own, ()) is Fate.KEEP, "an older leader's"
    lost = facts(live(0, 30), next_offset=30, lost=(LostOffsets(5, 6, "gone"),))
    assert fate(lost, 0, SEEN, own, ()) is Fate.KEEP
    assert fate(facts(live(0, 30), (0, 30)), 0, SEEN, own, ()) is Fate.DROP, "DeleteRecords took it"
    assert fate(replace(log, left_out=True), 0, SEEN, own, ()) is Fate.DROP


def test_what_left_at_the_head_is_held_unless_the_tier_has_it() -> None:
    assert fate(LEFT, 0, SEEN, None, ()) is Fate.HOLD
    assert fate(replace(LEFT, next_offset=30), 0, SEEN, None, ()) is Fate.HOLD
    assert fate(replace(LEFT, next_offset=35), 0, SEEN, None, ()) is Fate.DROP
    older = replace(LEFT, next_offset=35, lineage=epochs((0, 0)), checkpoint=epochs((2, 35)))
    assert fate(older, 0, epochs((0, 0)), None, ()) is Fate.DROP
    assert fate(older, 0, epochs((0, 0), (2, 10)), None, ()) is Fate.HOLD, "an older leader's"
    assert fate(older, 0, (), None, ()) is Fate.HOLD, "the file tells"
    assert fate(older, 0, epochs((2, 35)), None, ()) is Fate.HOLD
    lost = facts(live(35), (0, 35), next_offset=35, lost=(LostOffsets(5, 6, "gone"),))
    assert fate(lost, 0, SEEN, None, ()) is Fate.HOLD
    assert fate(replace(LEFT, deleted=True), 0, SEEN, None, ()) is Fate.DROP
    expired = replace(LEFT, next_offset=35, log_start_offset=35)
    assert fate(expired, 0, SEEN, None, ()) is Fate.HOLD, "its unit is let go with an event"


def test_what_was_cut_off_or_replaced_is_dropped() -> None:
    assert fate(facts(live(0, 20)), 30, SEEN, None, ()) is Fate.DROP
    assert fate(facts(live(0, 30)), 30, SEEN, None, ()) is Fate.DROP
    assert fate(replace(LEFT, segments=()), 0, SEEN, None, ()) is Fate.KEEP


def test_an_active_file_that_left_was_committed_by_a_look_or_by_the_epoch_that_goes_on() -> None:
    left = unit(177, 188, (65, 177), followed_by=-1)

    def judged(*checkpoint: tuple[int, int], led: int | None = None, **more: Any) -> bool:
        known = facts(live(200, 210), *checkpoint)
        return is_committed(left, replace(known, **more), LastSeen(187, ()), led)

    assert is_committed(left, None, LastSeen(188, epochs((64, 100), (65, 170))), None)
    assert is_committed(left, None, LastSeen(188, ()), None), "its copy of the epochs is lost"
    assert not is_committed(left, None, LastSeen(187, epochs((65, 177))), None)
    for other in epochs((64, 177)), epochs((65, 177), (66, 187)):
        assert not is_committed(left, None, LastSeen(188, other), None), "what was seen was cut"
    assert judged((65, 200)), "the same leader's log goes on"
    assert not judged((66, 200))
    assert judged((66, 200), led=66), "it followed in the epoch before"
    assert not judged((66, 200), led=67), "it came to lead behind the look, and followed in 66"
    assert not judged((67, 200), led=67)
    for start in (188, 200):  # where epoch 66 began, or where the log of who claimed it did
        assert not judged((66, 200), lineage=epochs((65, 166)))
        assert not judged((76, 200), lineage=epochs((65, 166), (66, start)))
    for border, committed in ((187, False), (188, True)):
        inside = facts(live(180, 210), (64, 180), (65, 183), (66, border))
        assert is_committed(left, inside, LastSeen(187, ()), None) is committed
        assert is_committed(left, inside, LastSeen(187, ()), 66) is committed


def test_of_a_file_that_grew_unseen_that_is_committed_which_was_so_and_is_of_the_same_epochs() -> (
    None
):
    left = unit(177, 188, (65, 177), (66, 183), followed_by=-1)
    above = facts(live(200, 210), (70, 200))

    def end(high_watermark: int, *seen: tuple[int, int]) -> int:
        return committed_end(left, above, LastSeen(high_watermark, epochs(*seen)), None)

    assert end(180, (65, 170)) == 180
    assert end(187, (65, 170)) == 183, "the rest was cut since, and came anew"
    assert end(187, (65, 170), (66, 183)) == 187
    assert end(187, (64, 170), (65, 180)) == 183, "it may only be what came in place"
    assert end(187, (64, 170)) == 177
    assert end(187) == 177, "the copy of the epochs is lost"
    assert end(-1, (65, 170)) == 177
    assert end(100, (65, 170)) == 177


def test_of_a_file_that_grew_unseen_that_is_committed_in_whose_epoch_the_log_goes_on() -> None:
    left = unit(177, 188, (65, 177), (67, 183), followed_by=-1)
    seen = LastSeen(-1, ())
    assert committed_end(left, facts(live(200, 210), (65, 200), (70, 205)), seen, None) == 183
    assert committed_end(left, facts(live(200, 210), (66, 200), (70, 205)), seen, None) == 177
    assert committed_end(left, facts(live(182, 210), (65, 182), (70, 205)), seen, None) == 177
    assert committed_end(left, None, seen, None) == 177

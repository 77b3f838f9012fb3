"""How many records one step of the loop takes."""

from __future__ import annotations

from rlmm.manager.apply_loop import COST_OF_OTHERS, _step_end
from rlmm.metadata_log import CommittedRecord
from rlmm.partition_state import TopicPolicy
from rlmm.records.control_records import TopicPolicyChange
from rlmm.records.records import MetadataRecord, encode
from tests.rlmm.state_world import World

COST_MAX = 60


def committed(*records: MetadataRecord) -> list[CommittedRecord]:
    proposals = map(encode, records)
    return [
        CommittedRecord(offset, 1, 0, proposal.control_type, proposal.value)
        for offset, proposal in enumerate(proposals)
    ]


def sizes(records: list[CommittedRecord]) -> list[int]:
    found, start = [], 0
    while start < len(records):
        end = _step_end(records, start, COST_MAX)
        found.append(end - start)
        start = end
    return found


def test_added_segments_share_a_step_and_other_records_count_for_several() -> None:
    world = World()
    add, finish = world.an_add(1, 0, 9, [(4, 0)]), world.a_finish(1)
    policy = TopicPolicyChange("orders", TopicPolicy(), -1)
    others = COST_MAX // COST_OF_OTHERS
    assert sizes(committed(*[add] * 70)) == [COST_MAX, 10]
    assert sizes(committed(*[finish] * 14)) == [others, others, 14 - 2 * others]
    assert sizes(committed(*[policy] * 14)) == [others, others, 14 - 2 * others]
    assert sizes(committed(*[add] * 59, finish, finish)) == [60, 1]


def test_a_step_takes_one_record_at_least_and_nothing_where_nothing_is() -> None:
    assert _step_end(committed(World().a_finish(1)), 0, 1) == 1
    assert _step_end([], 0, COST_MAX) == 0

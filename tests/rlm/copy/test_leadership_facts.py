"""The broker's log start, asked for a first delegated claim, and for how long its answer counts."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.copy.leadership_facts import learn_tiered_log_start
from rlm.copy.partition_work import PartitionWork
from rlm.leadership.leadership import LeadershipFacts, Leads
from rlmm.partition_state import Mode
from rlmm.segment import Incarnation

ORDERS = TopicIdPartition("orders", Uuid(b"orders-topic-id!"), 0)
LEADS = Leads(5, 30)
DELEGATED = LeadershipFacts(
    word=LEADS,
    checkpoint=(),
    state=None,
    incarnation=Incarnation(1, Uuid(b"directory-of-one"), 1),
    now_ms=0,
    wanted=Mode.DELEGATED,
)


def test_an_answer_of_before_another_mode_is_forgotten() -> None:
    """A node may have copied meanwhile, in the same leadership, what the broker does not have."""
    work = PartitionWork(ORDERS, word=LEADS, mode=Mode.DELEGATED, tiered_log_start=(5, 0))
    asyncio.run(learn_tiered_log_start(work, DELEGATED, None))
    assert work.tiered_log_start == (5, 0)
    asyncio.run(learn_tiered_log_start(work, replace(DELEGATED, wanted=Mode.SIDECAR), None))
    assert work.tiered_log_start is None

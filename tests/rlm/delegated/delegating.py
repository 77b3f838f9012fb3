"""A node whose broker tiers its topics itself, and announcements of that broker."""

from __future__ import annotations

from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.delegated.wire import WHOLE_SET, Announcement
from rlm.leadership.leadership import Leads, TopicConfig
from rlm.leadership.topic_filter import TopicFilter
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.planner_facts import uuid

TIERED = TopicConfig("delete", -1, -1, True)
COUNTED = TopicConfig("delete", -1, 1 << 20, True)
"""Its broker counts what is there against `retention.bytes`."""
NO_TOPICS = TopicFilter(())
SESSION = uuid(1)


def announcement(*leaders: TopicIdPartition, session: int = 1, seq: int = 1) -> Announcement:
    """The whole set of a broker that leads these."""
    return Announcement(
        "kafka-1", 1, "0.1.0", "4.3.0", "127.0.0.1:9092", uuid(session), seq, WHOLE_SET, leaders,
        (), (),
    )  # fmt: skip


def broker_of(log: KafkaLog, epoch: int = 0, stable: int = 25) -> FakeBroker:
    """A broker that leads this partition and tiers it."""
    tip = log.partition
    return FakeBroker({(tip.topic, tip.partition): Leads(epoch, stable)}, TIERED)

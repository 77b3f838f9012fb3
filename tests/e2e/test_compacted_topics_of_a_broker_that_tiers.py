"""Compaction and a broker that tiers: the broker refuses to do both at once, and a topic that was
compacted before is tiered as it is, with gaps, and segments without a byte.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.e2e.tier_client import TierClient
from tests.e2e.tiering_broker import TOPIC, below, site, topic_config
from tests.e2e.writer import Writer
from tests.real.kafka import KAFKA_VERSION, KafkaBroker
from tests.real.kafka_clients import NewRecord, consume_all, produce

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

VERSIONS = [
    pytest.param("3.9.2", marks=pytest.mark.soak),
    KAFKA_VERSION,
    pytest.param("4.4.0", marks=pytest.mark.soak),
]
COMPACTING = ("compact", "compact,delete")
COMPACTED_TOPIC = "latest-positions"
KEYS = 40
ROUNDS = 60
COMPACTED_SOON = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
    "segment.ms": "1000",
}


def is_refused(error: KafkaException) -> bool:
    """By all versions alike, in other words."""
    told = error.args[0]
    return told.code() == KafkaError.INVALID_CONFIG and any(
        each in told.str()
        for each in ("unsupported for the compacted topics", "only supports topics with cleanup")
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_does_not_tier_what_it_compacts_and_goes_on_with_what_it_tiers(
    tmp_path: Path, version: str
) -> None:
    with site(tmp_path, version) as (broker, node):
        for policy in COMPACTING:
            with pytest.raises(KafkaException, check=is_refused):
                broker.create_topic(
                    TOPIC, config=topic_config(version) | {"cleanup.policy": policy}
                )
        broker.create_topic(COMPACTED_TOPIC, config={"cleanup.policy": "compact"})
        with pytest.raises(KafkaException, check=is_refused):
            broker.alter_topic(COMPACTED_TOPIC, {"remote.storage.enable": "true"})
        broker.create_topic(TOPIC, config=topic_config(version))
        tier = TierClient(node.url, TOPIC, 0)

        def copied(more: int) -> None:
            count = tier.status().get("remote_segments", 0) + more
            broker.wait_until(lambda: tier.status().get("remote_segments", 0) >= count, "copies")

        with Writer(broker.bootstrap, TOPIC, 1):
            copied(2)
            for policy in COMPACTING:
                with pytest.raises(KafkaException, check=is_refused):
                    broker.alter_topic(TOPIC, {"cleanup.policy": policy})
            copied(3)
        offsets = [record.offset for record in consume_all(broker.bootstrap, TOPIC, 0)]
        assert offsets == sorted(set(offsets))
        assert offsets[0] == 0
        compacted = TierClient(node.url, COMPACTED_TOPIC, 0)
        broker.wait_until(
            lambda: compacted.status().get("why_not_copying") == "compacted", "the node's word"
        )
        assert compacted.segments() == []


def write_rounds(broker: KafkaBroker, first: int) -> list[bytes]:
    """Every key once in each round, a batch a round; the values in order."""
    values = [
        b"round %d of key %d " % (number, key) * 8
        for number in range(first, first + ROUNDS)
        for key in range(KEYS)
    ]
    records = [NewRecord(each, key=b"%d" % (at % KEYS)) for at, each in enumerate(values)]
    produce(broker.bootstrap, TOPIC, 0, records, config={"batch.num.messages": KEYS})
    return values


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_that_was_compacted_is_tiered_and_read_as_it_is(
    tmp_path: Path, version: str
) -> None:
    with site(tmp_path, version) as (broker, node):
        tiered = topic_config(version)
        plain = {
            name: value
            for name, value in tiered.items()
            if not name.startswith(("remote.", "local."))
        }
        broker.create_topic(TOPIC, config=plain | COMPACTED_SOON)
        compacted = write_rounds(broker, 0)

        cleaner = broker.log_dir / "cleaner-offset-checkpoint"

        def is_compacted() -> bool:
            sealed = broker.segment_files(TOPIC, 0)[:-1]
            empty = any(path.stat().st_size == 0 for path in sealed)
            return empty and cleaner.is_file() and TOPIC in cleaner.read_text()

        broker.wait_until(is_compacted, "a compaction to its end")
        broker.alter_topic(TOPIC, tiered | {"cleanup.policy": "delete"})
        written = write_rounds(broker, ROUNDS)
        broker.wait_until(lambda: len(broker.segment_files(TOPIC, 0)) == 1, "local retention")
        tier = TierClient(node.url, TOPIC, 0)
        rows = tier.segments()
        assert rows[0]["start_offset"] == 0
        assert any(row["size_bytes"] == 0 for row in rows)
        assert all(row["state"] == "COPY_SEGMENT_FINISHED" for row in rows)
        everything = consume_all(broker.bootstrap, TOPIC, 0)
        offsets = [record.offset for record in everything]
        assert offsets == sorted(set(offsets))
        values = [record.value for record in everything]
        assert values[-len(written) :] == written
        left = set(values[: -len(written)])
        assert set(compacted[-KEYS:]) <= left < set(compacted)
        assert tier.records("read_uncommitted") == below(everything, tier)
        assert consume_all(broker.bootstrap, TOPIC, 0, isolation="read_committed") == everything
        broker.restart()
        assert consume_all(broker.bootstrap, TOPIC, 0) == everything

"""The shadow of the metadata log in Kafka's own metadata topic, as plain values.

In phase QUORUM each accepted change of a delegated partition is kept as an outbox row until it is
in the topic, so that a move can go back. The rules are in `rlmm/apply/shadow.py`, the writer is in
`rlm/migration/`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafka_formats.kafka_uuid import ZERO_UUID, Uuid

OUTBOX_ROWS_MAX = 200_000
"""Changes that wait for the topic, about 50 MB. One more, and the shadow is given up."""
REMOVED_MAX = 500
"""Outbox rows that one record removes, at most."""
TOPIC_PARTITIONS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """A change that is not known to be in the topic: metadata offset, record time in ms, and the
    record's value as Kafka's own manager would write it.
    """

    offset: int
    time_ms: int
    value: bytes


@dataclass(frozen=True, slots=True)
class TopicPosition:
    """A partition of the topic was read up to `next_offset`, exclusive, and `last` is the highest
    metadata offset that was found below it, -1 if none was.
    """

    partition: int
    next_offset: int
    last: int = -1


@dataclass(frozen=True, slots=True)
class Shadow:
    """All changes up to metadata offset `written_up_to` are in the topic, and `rows` wait. `begun`
    is the metadata offset of the switch (phase SWITCHING) that it belongs to.

    `topic_id` and `partitions` are the topic's own; zero before the first report. `incomplete`: why
    the topic lacks changes for good, and nothing is written any more; `foreign`: who else wrote to
    it, so that nothing is deleted; empty if it is not so.
    """

    begun: int = -1
    topic_id: Uuid = ZERO_UUID
    partitions: int = 0
    written_up_to: int = -1
    rows: int = 0
    incomplete: str = ""
    foreign: str = ""


@dataclass(frozen=True, slots=True)
class ShadowLag:
    """Changes that are not known to be in the topic, and the time of the oldest one's batch in ms;
    None: there is none.
    """

    records: int
    oldest_ms: int | None

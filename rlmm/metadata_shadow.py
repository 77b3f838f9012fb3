"""The shadow of the metadata log in Kafka's own metadata topic, as plain values.

In phase QUORUM each accepted change of a delegated partition is kept as an outbox row until it is
in the topic, so that the move can be reversed. The rules are in `rlmm/apply/shadow.py`, the writer
is in `rlm/migration/`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafka_formats.kafka_uuid import ZERO_UUID, Uuid

OUTBOX_ROWS_MAX = 200_000
"""The most changes that wait for the topic, about 50 MB. With one more the shadow is given up."""
REMOVED_MAX = 500
"""The most outbox rows that one record removes."""
TOPIC_PARTITIONS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """A change that may not be in the topic yet: metadata offset, record time in ms, and the
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
    is the metadata offset of the switch (phase SWITCHING) to which the shadow belongs.

    `topic_id` and `partitions` are the topic's own; zero before the first report. `incomplete`: the
    reason why the topic lacks changes for good, so that nothing more is written; `foreign`: the
    other writer found in it, so that nothing is deleted; both empty if there is none.
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
    """The number of changes that may not be in the topic yet, and the time of the oldest one's
    batch in ms; None if there is none.
    """

    records: int
    oldest_ms: int | None

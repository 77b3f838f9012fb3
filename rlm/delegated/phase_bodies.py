"""The request and the answer of `phase`, with which the bridge asks for the phase of a move
(docs/BROKER_PROTOCOL.md). Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from rlm.delegated.wire import BodyReader, BodyWriter, whole

NONE_SEEN = -1
"""The value sent by a bridge that has received no phase since its broker's start."""
_PHASES = 5


@dataclass(frozen=True, slots=True)
class PhaseAsked:
    """The request of a broker's bridge. `seen`: number of the phase by which it acts, or NONE_SEEN;
    `outstanding`: its changes that may still arrive in Kafka's metadata topic.
    """

    kafka_cluster_id: str
    broker_id: int
    seen: int
    outstanding: int


def _phase_asked(reader: BodyReader) -> PhaseAsked:
    asked = PhaseAsked(reader.string(), reader.int32(), reader.int8(), reader.int32())
    if not NONE_SEEN <= asked.seen < _PHASES or asked.outstanding < 0:
        raise reader.corrupt(f"phase {asked.seen} with {asked.outstanding} changes")
    return asked


decode_phase_asked = partial(whole, _phase_asked)


def encode_phase(applied: int, phase: int, since: int) -> bytes:
    """Encode the phase, and `since`, the metadata offset of its record; -1 if there is none."""
    writer = BodyWriter()
    writer.int64(applied)
    writer.int8(phase)
    writer.int64(since)
    return writer.done()

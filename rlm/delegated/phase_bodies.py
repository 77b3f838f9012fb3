"""The bodies of `phase`, by which the bridge asks for the phase of the move. Pure.

docs/BROKER_PROTOCOL.md has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from rlm.delegated.wire import BodyReader, BodyWriter, whole

NONE_SEEN = -1
"""The value of a bridge that has heard no phase since its broker's start."""
_PHASES = 5


@dataclass(frozen=True, slots=True)
class PhaseAsked:
    """The bridge of a broker asks. `seen`: number of the phase that it acts by, or NONE_SEEN;
    `outstanding`: its changes that may still come into Kafka's metadata topic.
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
    """The phase, and the metadata offset of its record; -1: there is none."""
    writer = BodyWriter()
    writer.int64(applied)
    writer.int8(phase)
    writer.int64(since)
    return writer.done()

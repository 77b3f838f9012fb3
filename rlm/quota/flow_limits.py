"""How fast bytes may move to and from the stores, and what that means for those who move them.

Pure. A worker that moves limited bytes asks for them `quantum_bytes` at a time, and has no more
than `sends_max` request bodies on their way: a body that is fed in drops beside many others would
take longer than one request may.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kafka_formats.errors import InvalidRequest
from kafka_formats.log_names import check_topic_name

MIB = 2**20
LIMIT_BYTES_PER_S_MIN = MIB
"""Below that one part of an upload would take longer than a request may."""

LIMITED_TOPICS_MAX = 1_000
GRANTS_PER_S = 10
QUANTUM_BYTES_MAX = MIB
BODY_S = 30.0
"""How long one request body should take to be sent at a limited rate; a request's deadline is four
times as long.
"""


class Flow(StrEnum):
    """A direction. Values are stable: they stand in metrics."""

    COPY = "copy"
    READ = "read"


@dataclass(frozen=True, slots=True)
class Rates:
    """Bytes a second, None: without a limit. `copy` to the stores, `read` from them."""

    copy_bytes_per_s: int | None = None
    read_bytes_per_s: int | None = None

    def of(self, flow: Flow) -> int | None:
        """That of one direction."""
        return self.copy_bytes_per_s if flow is Flow.COPY else self.read_bytes_per_s


NO_LIMIT = Rates()


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """The node's limits, and those of single topics within them."""

    node: Rates = NO_LIMIT
    topics: Mapping[str, Rates] = field(default_factory=dict)

    def check(self, *, part_bytes: int, workers: int) -> None:
        """InvalidRequest naming what cannot be held."""
        if len(self.topics) > LIMITED_TOPICS_MAX:
            raise InvalidRequest(
                f"at most {LIMITED_TOPICS_MAX} topics can have limits of their own", field="topics"
            )
        for topic in self.topics:
            check_topic_name(topic)
        least = max(LIMIT_BYTES_PER_S_MIN, round(part_bytes * workers / BODY_S))
        for rates in (self.node, *self.topics.values()):
            for flow in Flow:
                rate = rates.of(flow)
                bound = least if flow is Flow.COPY else LIMIT_BYTES_PER_S_MIN
                if rate is not None and rate < bound:
                    raise InvalidRequest(
                        f"{rate} bytes a second are too few: at least {bound}, or one part of "
                        f"{part_bytes} bytes takes longer than a request may; to stop altogether, "
                        "pause copying",
                        field=f"{flow.value}_bytes_per_s",
                    )


@dataclass(frozen=True, slots=True)
class Pace:
    """What a worker has to know of one limit."""

    quantum_bytes: int
    sends_max: int


@dataclass(frozen=True, slots=True)
class Paces:
    """All limits as a worker sees them; what is not named is not limited."""

    node: Mapping[Flow, Pace] = field(default_factory=dict)
    topics: Mapping[tuple[Flow, str], Pace] = field(default_factory=dict)


def paces(limits: FlowLimits, *, part_bytes: int, workers: int) -> Paces:
    """`part_bytes`: the largest body; `workers` share each limit."""

    def pace(rate: int) -> Pace:
        sends = int(rate * BODY_S / (part_bytes * workers))
        return Pace(min(rate // GRANTS_PER_S, QUANTUM_BYTES_MAX), max(1, sends))

    node = {flow: pace(rate) for flow in Flow if (rate := limits.node.of(flow)) is not None}
    topics = {
        (flow, topic): pace(rate)
        for topic, rates in limits.topics.items()
        for flow in Flow
        if (rate := rates.of(flow)) is not None
    }
    return Paces(node, topics)


def least_rate(limits: FlowLimits, flow: Flow, topic: str) -> int | None:
    """The tightest limit that bytes of the topic pass; None: there is none."""
    rates = (limits.node.of(flow), limits.topics.get(topic, NO_LIMIT).of(flow))
    return min((rate for rate in rates if rate is not None), default=None)
